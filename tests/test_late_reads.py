"""Reads of reference variables after a write: such an op stays whole, with its variable."""

from typing import Any

from training_graphs import exported

from pesto_cli import api


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
