"""Colocation groups are large enough: TensorFlow runs every group on its planned device."""

import random
from collections import defaultdict
from typing import Any

import pytest
import training_graphs

from pesto_cli.graphdef.outside_step import variable_of
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.tensorflow import tensorflow

DEVICES = [f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(2)]


def device_of_node(step: StepGraph, seed: int) -> dict[str, str]:
    """Return a random device of two for each group, by node; feeds are on the first."""
    drawn = random.Random(seed)
    of_group = [drawn.choice(DEVICES) for _ in range(step.graph.num_groups)]
    for group, op_type in zip(step.graph.colocation_group, step.graph.types, strict=True):
        if op_type == "Placeholder":
            of_group[group] = DEVICES[0]
    of_op = [of_group[group] for group in step.graph.colocation_group]
    placed = {name: of_op[op] for op, names in enumerate(step.nodes) for name in names}
    return placed | {name: of_op[op] for name, op in step.constants.items()}


def devices_used(meta: Any, devices: dict[str, str]) -> dict[str, set[str]]:
    """Return the devices on which TensorFlow ran nodes of each name, in functions, too."""
    seen = defaultdict(set)
    for device in training_graphs.step_stats(meta, devices).dev_stats:
        for node in device.node_stats:
            seen[node.node_name].add(device.device)
    return seen


GRAPHS = {
    "ref variables, momentum": (training_graphs.convnet, False),
    "sparse gradients": (training_graphs.embedding, False),
    "v1 loop and cond": (training_graphs.recurrent, False),
    "While and If": (training_graphs.recurrent, True),
    "nested loops": (training_graphs.nested_loops, False),
    "assigning branches": (training_graphs.stateful_cond, False),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", GRAPHS)
def test_tensorflow_runs_every_group_on_its_device(kind: str, seed: int) -> None:
    build, functional = GRAPHS[kind]
    meta = training_graphs.exported(build, functional_control_flow=functional)
    chosen = device_of_node(read_step(meta), seed)
    seen = devices_used(meta, chosen)
    ran = chosen.keys() & seen.keys()
    assert len(ran) > 0.5 * len(chosen)
    assert {name for name in ran if chosen[name] not in seen[name]} == set()


def test_reading_the_name_of_a_variable_does_not_change_its_handle() -> None:
    node = tensorflow().compat.v1.NodeDef(name="v", op="VarHandleOp")
    assert variable_of(node) == ("", "v")
    assert not node.attr


def test_handles_of_one_variable_are_together_and_count_once() -> None:
    def build(tf: Any) -> list[Any]:
        ops = tf.raw_ops
        handles = [
            ops.VarHandleOp(dtype=tf.float32, shape=[5], shared_name=shared, name=name)
            for name, shared in (("v", "v"), ("again", "v"), ("other", "w"))
        ]
        reads = [ops.ReadVariableOp(resource=each, dtype=tf.float32) for each in handles]
        return [tf.add_n(reads).op]

    graph = read_step(training_graphs.exported(build)).graph
    first, again, other = (graph.index_of[name] for name in ("v", "again", "other"))
    group = graph.colocation_group
    assert group[first] == group[again] != group[other]
    assert sorted(graph.resident_bytes[[first, again, other]].tolist()) == [0, 20, 20]


def test_tensorflow_moves_an_op_that_is_split_from_its_group() -> None:
    meta = training_graphs.exported(training_graphs.convnet)
    step = read_step(meta)
    chosen = device_of_node(step, seed=0)
    update = step.graph.names[step.graph.types.index("ApplyMomentum")]
    other = next(device for device in DEVICES if device != chosen[update])
    assert devices_used(meta, chosen | {update: other})[update] == {chosen[update]}
