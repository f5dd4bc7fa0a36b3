"""In traces, nodes of functions are separated from nodes of the graph with the same name."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from test_trace_source import Recorded as Recording
from test_trace_source import recorded_in
from training_graphs import exported
from two_cpus import NAMES, two_cpus

from pesto_cli import api
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.bodies import Bodies, Recorded
from pesto_cli.graphdef.read import read_step
from pesto_cli.profile.traces.source import read_trace
from pesto_cli.runtime.step import Step

SIDE = 96
SHARED = ("chosen", "looped")
"""Names of large products in functions and of small products in the graph."""


def shared_names(tf: Any) -> Any:
    """Build a conditional and a loop with large products, and later small ones of the same name."""
    tf1 = tf.compat.v1
    fed = tf1.placeholder(tf.float32, [SIDE, SIDE], name="fed")

    def large(value: Any, name: str) -> Any:
        return 1e-3 * tf.linalg.matmul(value, value, name=name)

    def body(trip: Any, value: Any) -> Any:
        return trip + 1, large(value, "looped")

    branch = tf1.cond(tf.reduce_sum(fed * fed) > 0, lambda: large(fed, "chosen"), lambda: fed)
    loop = tf1.while_loop(lambda trip, _: trip < 3, body, [0, fed])[1]
    small = [
        tf.linalg.matmul(value[:2, :2], value[:2, :2], name=name)
        for value, name in zip((branch, loop), SHARED, strict=True)
    ]
    return [tf.group(*small, name="all"), tf.reduce_sum(small[0] + small[1])]


@pytest.fixture(scope="module")
def meta() -> Any:
    return exported(shared_names, functional_control_flow=True)


def test_the_callers_of_shared_names_are_known(meta: Any) -> None:
    type_of = {node.name: node.op for node in meta.graph_def.node}
    callers = Bodies.of(meta.graph_def).callers
    for name, kinds in zip(
        SHARED, (("If", "StatelessIf"), ("While", "StatelessWhile")), strict=True
    ):
        (caller,) = callers[name]
        assert type_of[caller] in kinds


def test_a_run_that_starts_during_a_call_on_its_device_belongs_to_the_body() -> None:
    runs = [
        Recorded("call", "a", 10, 20),
        Recorded("node", "a", 10, 19),
        Recorded("node", "a", 20, 21),
        Recorded("node", "b", 15, 16),
        Recorded("other", "a", 15, 16),
    ]
    bodies = Bodies({"node": frozenset({"call"})})
    assert bodies.is_own(runs) == [True, False, True, True, True]
    assert Bodies().is_own(runs) == [True] * 5


def test_names_are_found_in_a_recursive_function(meta: Any) -> None:
    graph_def = type(meta.graph_def)()
    graph_def.node.add(name="call", op="again")
    graph_def.node.add(name="inner", op="NoOp")
    graph_def.node.add(name="deeper/inner", op="NoOp")
    function = graph_def.library.function.add()
    function.signature.name = "again"
    function.node_def.add(name="inner", op="NoOp")
    function.node_def.add(name="deeper", op="again")
    assert Bodies.of(graph_def).callers["inner"] == {"call"}


def last_us(steps: Sequence[Any], name: str) -> list[float]:
    """Return the time in us of the graph's own node in each step (StepStats).

    It is the last run of this name, because the node runs after all nodes with the same name.
    """
    found = []
    for step in steps:
        runs = [run for d in step.dev_stats for run in d.node_stats if run.node_name == name]
        assert len(runs) > 1
        last = max(runs, key=lambda run: run.all_start_nanos)
        found.append((last.op_end_rel_nanos - last.op_start_rel_nanos) / 1e3)
    return found


def test_no_departure_is_reported_if_a_function_body_has_node_names_of_the_graph(meta: Any) -> None:
    """The body's nodes run on another device, and before the ops that the order puts first."""
    step = read_step(meta)
    callers = {name for names in Bodies.of(meta.graph_def).callers.values() for name in names}
    plan = PlacementFile(
        devices=list(NAMES),
        names=list(step.graph.names),
        device=[int(name not in callers) for name in step.graph.names],
        rank=np.argsort(step.graph.topological_order).tolist(),
        fingerprint=[],
        provenance={"graph_hash": step.graph_hash},
        predicted={},
    )
    (run,) = api.run_steps(meta, two_cpus(), [plan], steps=3)
    assert run.verification.departures == ()
    assert run.verification.num_ops > len(SHARED)


def test_a_profile_by_run_has_the_times_of_the_graphs_own_nodes(
    meta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    traced = Step.traced

    def watched(step: Step) -> Any:
        seen.append(traced(step))
        return seen[-1]

    monkeypatch.setattr(Step, "traced", watched)
    found = api.profile_by_run(meta, two_cpus(), steps=3)
    profiled = [metadata.step_stats for metadata in seen[:3]]  # the others measure contention
    expected_us = np.median(last_us(profiled, "chosen"))
    op = found.problem.graph.index_of["chosen"]
    assert found.problem.time_us[op, 0] == pytest.approx(expected_us)


MOST_RECORDINGS = 4


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory, meta: Any) -> Recording:
    """Record again if the profiler lost runs of bodies, as it rarely does on a busy machine."""
    for _ in range(MOST_RECORDINGS):
        recording = recorded_in(tmp_path_factory.mktemp("traces"), meta)
        if _has_all_bodies(recording, meta):
            break
    return recording


def _has_all_bodies(traces: Recording, meta: Any) -> bool:
    path, bodies = traces.folder / "host.xplane.pb", Bodies.of(meta.graph_def)
    own_us, all_us = read_trace(path, bodies).us, read_trace(path).us
    return all((own_us[name, "CPU"] < all_us[name, "CPU"]).all() for name in SHARED)


RUN_METADATA = ("steps", "events", "timelines")
"""Trace formats that do not contain the bodies of loops."""


@pytest.mark.parametrize("form", [*RUN_METADATA, "host.xplane.pb", "viewer.json"])
def test_a_trace_in_any_format_has_the_times_of_the_graphs_own_nodes(
    form: str, traces: Recording, meta: Any
) -> None:
    path = traces.folder / form
    own_us_of = read_trace(path, Bodies.of(meta.graph_def)).us
    all_us_of = read_trace(path).us
    for name in SHARED[:1] if form in RUN_METADATA else SHARED:
        assert (own_us_of[name, "CPU"] < all_us_of[name, "CPU"]).all()
    if form in ("steps", "events"):
        found = own_us_of["chosen", "CPU"].tolist()
        assert found == pytest.approx(last_us(traces.stats, "chosen"))
