"""The colocation groups are large enough: TensorFlow runs every group where it is put."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import training_graphs

from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.tensorflow import tensorflow

DEVICES = [f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(2)]


def device_of_node(step: StepGraph, seed: int) -> dict[str, str]:
    """Every group on one of two devices, by chance; feeds arrive on the first."""
    drawn = random.Random(seed)
    of_group = [drawn.choice(DEVICES) for _ in range(step.graph.num_groups)]
    for group, op_type in zip(step.graph.colocation_group, step.graph.types, strict=True):
        if op_type == "Placeholder":
            of_group[group] = DEVICES[0]
    of_op = [of_group[group] for group in step.graph.colocation_group]
    placed = {name: of_op[op] for op, names in enumerate(step.nodes) for name in names}
    return placed | {name: of_op[op] for name, op in step.constants.items()}


def devices_seen(meta: Any, devices: dict[str, str]) -> dict[str, str]:
    """Where TensorFlow ran the nodes of a step, by its own account."""
    tf1 = tensorflow().compat.v1
    graph_def = tf1.GraphDef()
    graph_def.CopyFrom(meta.graph_def)
    for node in graph_def.node:
        node.device = devices.get(node.name, "")
        node.attr.pop("_class", None)
    config = tf1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    fetches = list(meta.collection_def["train_op"].node_list.value)
    metadata = tf1.RunMetadata()
    with tf1.Graph().as_default() as graph, tf1.Session(config=config) as session:
        tf1.import_graph_def(graph_def, name="")
        session.run(list(meta.collection_def["init_op"].node_list.value))
        feeds = {
            op.outputs[0]: np.ones(op.outputs[0].shape, op.outputs[0].dtype.as_numpy_dtype)
            for op in graph.get_operations()
            if op.type == "Placeholder"
        }
        options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
        session.run(fetches, feeds, options=options, run_metadata=metadata)
    return {
        node.node_name: device.device
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    }


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "build",
    [
        training_graphs.convnet,
        training_graphs.embedding,
        training_graphs.recurrent,
        training_graphs.nested_loops,
        training_graphs.stateful_cond,
    ],
)
def test_tensorflow_runs_every_group_where_it_is_put(
    build: Callable[[Any], Any], seed: int
) -> None:
    meta = training_graphs.exported(build)
    chosen = device_of_node(read_step(meta), seed)
    seen = devices_seen(meta, chosen)
    ran = chosen.keys() & seen.keys()
    assert len(ran) > 0.5 * len(chosen)
    assert {name for name in ran if seen[name] != chosen[name]} == set()
