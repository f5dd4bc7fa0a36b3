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
