"""Placed graphs get control inputs that keep oneDNN from merging nodes into cycles."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from training_graphs import exported

from pesto_cli.apply.edits import changes_on
from pesto_cli.data.schedule import Placement
from pesto_cli.graphdef.read import read_step


def convolution(tf: Any) -> list[Any]:
    """A convolution of a padded image and its bias, and both their gradients."""
    image = tf.random.normal([2, 6, 6, 3], seed=1, name="image")
    image = tf.pad(image, [[0, 0], [1, 1], [1, 1], [0, 0]])
    filters = tf.compat.v1.get_variable("filters", [3, 3, 3, 4], use_resource=True)
    flat = tf.compat.v1.get_variable("flat", [2, 2], use_resource=True)
    product = tf.nn.conv2d(image, filters, 1, "SAME", name="conv")
    total = tf.reduce_sum(tf.nn.bias_add(product, tf.reshape(flat, [4]), name="sum") ** 2)
    return [tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(total, name="train")]


def separated(device_of_type: Mapping[str, int], names: Mapping[int, str]) -> dict[str, bool]:
    """Return op type -> whether its node waits for the producer of its first input, too."""
    meta = exported(convolution)
    step = read_step(meta, "the graph")
    rank = np.empty(step.graph.num_ops, dtype=np.int64)
    rank[step.graph.topological_order] = np.arange(step.graph.num_ops)
    device = np.array([device_of_type.get(kind, 0) for kind in step.graph.types])
    waits_for = changes_on(meta, step, Placement(device, rank), names).waits_for
    nodes = step.wiring.nodes
    return {
        node.type: nodes[node.inputs[0][0]].name in waits_for.get(node.name, ())
        for node in nodes
        if node.type in ("BiasAdd", "BiasAddGrad", "Conv2D")
    }


TYPES = ("BiasAdd", "BiasAddGrad", "Conv2D")


def test_on_a_cpu_the_second_node_of_a_pair_also_waits_for_the_first_one() -> None:
    assert separated({}, {0: "/device:CPU:0"}) == dict.fromkeys(TYPES, True)


def test_no_control_input_is_added_on_gpus_or_between_devices() -> None:
    assert separated({}, {0: "/device:GPU:0"}) == dict.fromkeys(TYPES, False)
    cpus = {0: "/device:CPU:0", 1: "/device:CPU:1"}
    apart = {"BiasAdd": 1, "Conv2D": 2}
    cpus[2] = "/device:CPU:2"
    assert separated(apart, cpus) == {"BiasAdd": False, "BiasAddGrad": True, "Conv2D": False}
