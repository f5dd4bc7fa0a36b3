"""Control edges of a split step: no part runs before the ops for which the whole op waits."""

from typing import Any

from split_models import weights
from split_training import check_equal, trained
from training_graphs import exported

from pesto_cli import api
from pesto_cli.apply.splitting import split_graph


def counted(tf: Any) -> list[Any]:
    """A step that counts itself after the update; it adds a value that an op computes."""
    tf1 = tf.compat.v1
    rows = tf1.placeholder(tf.float32, [8, 4], name="rows")
    counter = tf1.get_variable("counter", [], initializer=tf1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(rows, weights(tf, "matrix", [4, 4]))), name="loss")
    update = tf1.train.GradientDescentOptimizer(0.5).minimize(loss)
    with tf.control_dependencies([update]):
        one = tf.cast(tf.cast(1, tf.int64), tf.float32)
    return [counter.assign_add(one, name="count", read_value=False), loss]


def test_an_op_waits_for_the_ops_before_a_value_that_its_parts_have_as_a_constant() -> None:
    meta = exported(counted)
    profile = api.profile(meta, "v100x2-nvlink", parts=(2,))
    plan = api.solve(profile, "ev-ar").solution.plan
    assert {"counter", "count"} <= plan.choices.keys()
    whole, split = trained(meta), trained(split_graph(meta, plan))
    losses = [float(fetched[-1]) for fetched in whole.fetched]
    assert len({*losses}) == len(losses)
    check_equal(whole, split, 1e-6)


def averaged(tf: Any) -> list[Any]:
    """A step with reference variables; after the update, it averages a matrix that it has read."""
    tf1 = tf.compat.v1
    rows = tf1.placeholder(tf.float32, [8, 4], name="rows")
    normal = tf1.random_normal_initializer(seed=1)
    matrix = tf1.get_variable("matrix", [4, 4], initializer=normal, use_resource=False)
    mean = tf1.get_variable("mean", [4, 4], initializer=normal, use_resource=False)
    loss = tf.reduce_mean(tf.square(tf.matmul(rows, matrix)), name="loss")
    update = tf1.train.GradientDescentOptimizer(0.5).minimize(loss, name="update")
    with tf.control_dependencies([update]):
        change = tf.subtract(mean, matrix.value(), name="change")
        scaled = tf.multiply(change, 0.1, name="scaled")
    return [tf1.assign_sub(mean, scaled, name="train").op, loss]


def test_an_op_that_reads_a_reference_variable_after_its_update_stays_with_it() -> None:
    meta = exported(averaged)
    problem = api.profile(meta, "v100x2-nvlink", parts=(2,)).problem
    graph, specs = problem.graph, problem.parts.op_specs
    group = dict(zip(graph.names, graph.colocation_group.tolist(), strict=True))
    spec = dict(zip(graph.names, specs, strict=True))
    assert group["matrix"] == group["matrix/read"] == group["change"]
    assert spec["change"] is None
    # Ops that do not take the memory of the variable may be anywhere, and parts.
    assert group["scaled"] not in (group["matrix"], group["mean"])
    assert spec["scaled"] is not None


def test_an_op_before_the_update_may_be_apart_from_a_reference_variable() -> None:
    graph = api.profile(exported(averaged), "v100x2-nvlink").problem.graph
    group = dict(zip(graph.names, graph.colocation_group.tolist(), strict=True))
    assert group["MatMul"] != group["matrix"]
