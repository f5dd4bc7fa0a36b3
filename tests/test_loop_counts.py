"""The numbers of loop iterations that follow from a graph agree with those of TensorFlow."""

from collections import Counter

import numpy as np
import pytest
from training_graphs import exported, step_stats

from pesto_cli.graphdef.fetches import node_name
from pesto_cli.graphdef.nodes import needed_nodes, topological_order
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.analytic.loops import Loops, _count
from pesto_cli.profile.analytic.unfolding import lowered

SCRIPT = """
import tensorflow as tf

def work(x):
    return tf.tanh(tf.matmul(x, W))

def over_range(x):
    for _ in tf.range(4):
        x = work(x)
    return x

def start_and_step(x):
    for _ in tf.range(2, 11, 3):
        x = work(x)
    return x

def downwards(x):
    for _ in tf.range(tf.constant(10, tf.int64), 0, -4):
        x = work(x)
    return x

def of_floats(x):
    for _ in tf.range(0.0, 1.0, 0.25):
        x = work(x)
    return x

def empty(x):
    for _ in tf.range(3, 3):
        x = work(x)
    return x

def nested(x):
    for _ in tf.range(2):
        for _ in tf.range(3):
            for _ in tf.range(1, 9, 4):
                x = work(x)
    return x

def with_break(x):
    for _ in tf.range(5):
        x = work(x)
        if tf.reduce_sum(x) > 1e9:
            break
    return x

def and_(x):
    i = tf.constant(0)
    while tf.reduce_sum(x) < 1e9 and 6 > i:
        x = work(x)
        i += 2
    return x

def or_(x):
    i = tf.constant(9)
    while i > 7 or i >= 4:
        x = work(x)
        i -= 1
    return x

def not_(x):
    i = tf.constant(0)
    while not (i >= 3 or i > 8):
        x = work(x)
        i += 1
    return x

def until_equal(x):
    i = tf.constant(1)
    while tf.not_equal(i, 7):
        x = work(x)
        i += 1
        i += 1
    return x

def by_shape(x):
    for _ in tf.range(tf.raw_ops.Shape(input=x)[1] * 2 - 1):
        x = work(x)
    return x

def by_length(x):
    parts = tf.unstack(x)
    for _ in tf.range(len(parts)):
        x = work(x)
    return x

def by_array(x):
    rows = tf.TensorArray(tf.float32, tf.constant(2) * 2)
    i = tf.constant(0)
    while i < rows.size():
        x = work(x)
        rows = rows.write(i, x)
        i += 1
    return x

def at_most(x):
    most = tf.constant(3) + 2
    proceed = lambda x: tf.reduce_sum(x) < 1e9
    return tf.while_loop(proceed, lambda x: (work(x),), [x], maximum_iterations=most)[0]

def over_rows(x):
    for row in tf.concat([x, x], 0):
        x = work(x) + row
    return x
"""
TIMES = {
    "over_range": 4,
    "start_and_step": 3,
    "downwards": 3,
    "of_floats": 4,
    "empty": 0,
    "nested": 12,
    "with_break": 5,
    "and_": 3,
    "or_": 6,
    "not_": 3,
    "until_equal": 3,
    "by_shape": 5,
    "by_length": 3,
    "by_array": 4,
    "at_most": 5,
    "over_rows": 6,
}
DATA_DECIDES = """
import tensorflow as tf

def work(x):
    return tf.tanh(tf.matmul(x, W))

def by_data(x):
    for _ in tf.range(tf.cast(tf.reduce_sum(x), tf.int32)):
        x = work(x)
    return x

def triangle(x):
    for i in tf.range(3):
        for _ in tf.range(i + 1):
            x = work(x)
    return x

def by_stack(x):
    start = tf.raw_ops.EmptyTensorList(
        element_shape=tf.constant([], tf.int32), max_num_elements=4, element_dtype=tf.int32)
    numbers = tf.raw_ops.TensorListPushBack(input_handle=start, tensor=3)
    for _ in tf.range(2):
        numbers, last = tf.raw_ops.TensorListPopBack(
            input_handle=numbers, element_shape=tf.constant([], tf.int32), element_dtype=tf.int32)
        numbers = tf.raw_ops.TensorListPushBack(input_handle=numbers, tensor=last + 1)
        for _ in tf.range(last):
            x = work(x)
    return x
"""


def counted(tmp_path, script, names):
    """Return the loops of functions and of gradients, and how often TensorFlow ran each node."""
    path, scope = tmp_path / "loops.py", {}
    path.write_text(script)  # AutoGraph reads the source

    def build(tf):
        exec(compile(script, str(path), "exec"), scope)
        scope["W"] = tf.compat.v1.get_variable("w", [3, 3], use_resource=True)
        x = tf.compat.v1.placeholder(tf.float32, [3, 3], name="x")
        loss = tf.add_n(
            [tf.reduce_sum(tf.function(scope[name])(x), name=f"loss_{name}") for name in names]
        )
        return [tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")]

    meta = lowered(exported(build, functional_control_flow=True))
    nodes = needed_nodes(meta.graph_def, map(node_name, ["train"]))
    loops = Loops(meta.graph_def, nodes, topological_order(nodes))
    runs = Counter(
        stats.node_name for device in step_stats(meta, {}).dev_stats for stats in device.node_stats
    )
    return nodes, loops, runs


def test_computed_loop_bounds_agree_with_a_real_run(tmp_path):
    nodes, loops, runs = counted(tmp_path, SCRIPT, TIMES)
    assert loops.of_unknown_length == []
    work = [index for index, node in enumerate(nodes) if node.type in ("Tanh", "TanhGrad")]
    forward = [loops.iterations(index) for index in work if nodes[index].type == "Tanh"]
    assert sorted(forward) == sorted(TIMES.values())
    for index in work:
        assert loops.iterations(index) == runs[nodes[index].name], nodes[index].name


def test_a_bound_is_computed_from_the_result_of_an_earlier_loop():
    def build(tf):
        x = tf.compat.v1.placeholder(tf.float32, [3, 3], name="x")
        limit = tf.constant(3)
        for _ in range(2):
            counter, x = tf.while_loop(
                lambda i, _, limit=limit: i < limit, lambda i, y: (i + 1, tf.tanh(y)), [0, x]
            )
            limit = 2 * counter
        return [tf.identity(x, name="result").op]

    meta = exported(build)
    nodes = needed_nodes(meta.graph_def, ["result"])
    loops = Loops(meta.graph_def, nodes, topological_order(nodes))
    work = [index for index, node in enumerate(nodes) if node.type == "Tanh"]
    assert [loops.iterations(index) for index in work] == [3, 6]


def test_bounds_that_change_or_depend_on_data_are_unknown(tmp_path):
    nodes, loops, _ = counted(tmp_path, DATA_DECIDES, ["by_data", "triangle", "by_stack"])
    forward = [frame for frame in loops.of_unknown_length if "grad" not in frame[-1]]
    assert len(forward) == 3
    outer = {node.name: i for i, node in enumerate(nodes) if node.type == "Tanh"}
    assert sorted(loops.iterations(index) for index in outer.values()) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["Less", "LessEqual", "Greater", "GreaterEqual", "NotEqual"])
def test_the_number_of_iterations_of_a_counter_agrees_with_python(kind):
    holds = {
        "Less": np.less,
        "LessEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterEqual": np.greater_equal,
        "NotEqual": np.not_equal,
    }[kind]
    for start, step, bound in np.ndindex(7, 7, 7):
        counter, trips = (int(start) - 3, int(step) - 3), 0
        value = counter[0]
        while holds(value, bound - 3) and trips < 50:
            value, trips = value + counter[1], trips + 1
        assert _count(kind, counter, int(bound) - 3) == (None if trips == 50 else trips)


def test_a_value_too_large_to_compute_is_not_computed():
    def build(tf):
        x = tf.compat.v1.placeholder(tf.float32, [3], name="x")
        huge = tf.raw_ops.Fill(dims=[100_000, 100_000], value=tf.constant(1))  # 40 GB
        most = tf.reduce_max(huge)
        ended = tf.while_loop(lambda i, _: i < most, lambda i, x: (i + 1, x * 2.0), [0, x])
        return [tf.identity(ended[1], name="result")]

    meta = exported(build)
    nodes = needed_nodes(meta.graph_def, ["result"])
    loops = Loops(meta.graph_def, nodes, topological_order(nodes))
    assert len(loops.of_unknown_length) == 1


def test_a_bound_that_cannot_be_computed_is_unknown():
    def build(tf):
        x = tf.compat.v1.placeholder(tf.float32, [3], name="x")
        most = tf.raw_ops.FloorDiv(x=tf.constant(1), y=tf.constant(0))
        ended = tf.while_loop(lambda i, _: i < most, lambda i, x: (i + 1, x * 2.0), [0, x])
        return [tf.identity(ended[1], name="result")]

    meta = exported(build)
    nodes = needed_nodes(meta.graph_def, ["result"])
    assert len(Loops(meta.graph_def, nodes, topological_order(nodes)).of_unknown_length) == 1
    assert tensorflow().executing_eagerly()
