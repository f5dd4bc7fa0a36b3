"""NoOps that let a CPU send before it computes."""

from collections.abc import Sequence
from typing import Any

import pytest

from pesto_cli.apply import apply, planned_changes, session_config
from pesto_cli.apply.sends import SentFirst
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow

DEVICES = {"CPU:0": "/device:CPU:0", "CPU:1": "/device:CPU:1", "GPU:0": "/device:GPU:0"}


def built(*, signal: bool = False, taken: Sequence[str] = ()) -> Any:
    """Return a step: `here` and `there` take `first`, or `there` only waits for it."""
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        x = tf.constant([[1.0, 2.0], [3.0, 4.0]], name="x")
        v = tf.compat.v1.get_variable("v", initializer=x, use_resource=True)
        first = tf.matmul(v, x, name="first")
        here = tf.matmul(first, x, name="here")
        with tf.control_dependencies([first] if signal else []):
            there = tf.matmul(x if signal else first, x, name="there")
        for name in taken:
            tf.no_op(name=name)
        graph.add_to_collection("train_op", here)
        graph.add_to_collection("train_op", there)
        return tf.compat.v1.train.export_meta_graph(graph=graph)


def placed(meta: Any, there: str, other: str = "CPU:0") -> PlacementFile:
    """Place `there` on one device and all other ops on another. Ranks are a topological order."""
    step = read_step(meta)
    names, devices = list(step.graph.names), list(DEVICES)
    at = {"there": there, **{name: "CPU:0" for name in names if name.startswith("_retval")}}
    device = [devices.index(at.get(name, other)) for name in names]
    rank = [0] * len(names)
    for index, op in enumerate(step.graph.topological_order.tolist()):
        rank[op] = index
    return PlacementFile(devices, names, device, rank, [], {"graph_hash": step.graph_hash}, {})


def sent_first(meta: Any, placement: PlacementFile) -> tuple[SentFirst, ...]:
    return planned_changes(meta, placement, devices=DEVICES).sent_first


def test_consumers_on_the_device_wait_until_the_tensor_is_sent() -> None:
    meta = built()
    (found,) = sent_first(meta, placed(meta, "CPU:1"))
    assert found == SentFirst("first", ("first.sent",), ("here",))
    nodes = {node.name: node for node in apply(meta, placed(meta, "CPU:1")).graph_def.node}
    assert list(nodes["first.sent"].input) == ["^first"]
    assert nodes["first.sent"].device == nodes["first"].device == "/device:CPU:0"
    assert list(nodes["here"].input) == ["first", "x", "^first.sent"]
    assert "^first.sent" not in nodes["there"].input


def test_a_signal_needs_two_no_ops() -> None:
    meta = built(signal=True)
    (found,) = (each for each in sent_first(meta, placed(meta, "CPU:1")) if each.op == "first")
    assert found == SentFirst("first", ("first.sending", "first.sent"), ("here",))


@pytest.mark.parametrize(
    ("there", "other"),
    [("CPU:0", "CPU:0"), ("CPU:0", "GPU:0"), ("GPU:0", "GPU:0")],
)
def test_nothing_changes_if_no_cpu_sends(there: str, other: str) -> None:
    meta = built()
    assert not sent_first(meta, placed(meta, there, other))


def test_names_of_the_graph_are_not_used_again() -> None:
    meta = built(taken=["first.sent"])
    (found,) = sent_first(meta, placed(meta, "CPU:1"))
    assert found.no_ops == ("first.sent_",)


def test_the_order_counts_without_the_no_ops() -> None:
    meta = built()
    changes = planned_changes(meta, placed(meta, "CPU:1"))
    assert changes.num_control_edges == sum(map(len, changes.waits_for.values()))
    assert not planned_changes(meta, placed(meta, "CPU:1"), order="none").sent_first


@pytest.mark.parametrize("signal", [False, True])
def test_the_placed_graph_computes_the_same(signal: bool) -> None:
    tf1, meta = tensorflow().compat.v1, built(signal=signal)
    values = []
    for graph in (meta, apply(meta, placed(meta, "CPU:1"), devices=DEVICES)):
        config = session_config()
        config.device_count["CPU"] = 2
        with tf1.Graph().as_default(), tf1.Session(config=config) as session:
            tf1.train.import_meta_graph(graph)
            session.run(tf1.global_variables_initializer())
            options, ran = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE), tf1.RunMetadata()
            values.append(session.run(["here:0", "there:0"], options=options, run_metadata=ran))
    nodes = {run.node_name for device in ran.step_stats.dev_stats for run in device.node_stats}
    assert "first.sent" in nodes
    for before, after in zip(*values, strict=True):
        assert (before == after).all()
