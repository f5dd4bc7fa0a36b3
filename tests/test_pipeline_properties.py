"""Any graph on any machine goes through the whole pipeline, and what comes out keeps every rule.

`make fuzz` looks at ten times as many (PESTO_EXAMPLES).
"""

import os
from itertools import combinations, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from conftest import on_gpus
from hypothesis import given, settings
from hypothesis import strategies as st
from placers import PLACERS
from random_problems import with_random_contention

from pesto_cli import api
from pesto_cli.apply.order import order_edges
from pesto_cli.data.graph import OpGraph, Tensor, topological_order
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.data.schedule import Placement, objective
from pesto_cli.evaluation.violations import violations
from pesto_cli.files import MAX_TENSOR_BYTES, PlacementFile, Profile
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.strategies import STRATEGIES
from pesto_cli.strategies.context import with_parameters

CONTEXT = api.Context(limits=api.Limits(time_limit_s=0.02, deterministic=True))
QUICK = {name: with_parameters(STRATEGIES[name], num_nodes=6) for name in PLACERS}
EXAMPLES = int(os.environ.get("PESTO_EXAMPLES", "1"))


def examples(count: int) -> Any:
    """Return settings with the same examples in every run, and more of them on request."""
    return settings(max_examples=count * EXAMPLES, derandomize=True, deadline=None, database=None)


# Ties, zeros, and sizes at the limit of profiles are likely.
SIZES = st.sampled_from([0, 0, 1, 1000, 1000, 10**6, MAX_TENSOR_BYTES])
TIMES_US = st.sampled_from([0.0, 0.0, 1.0, 1.0, 7.5, 100.0, 1e12])
SHAPES = ("random", "chain", "star out", "star in", "apart", "complete")


def edges_of(shape: str, num_ops: int) -> list[tuple[int, int]]:
    """Return the (producer, consumer) pairs of a shape; for a random graph, all possible pairs."""
    ops = range(num_ops)
    if shape == "chain":
        return list(pairwise(ops))
    if shape == "star out":
        return [(0, op) for op in ops[1:]]
    if shape == "star in":
        return [(op, num_ops - 1) for op in ops[:-1]]
    return [] if shape == "apart" else list(combinations(ops, 2))


@st.composite
def graphs(draw: Any) -> OpGraph:
    """Draw a graph of up to eight ops with all features of graphs."""
    num_ops = draw(st.integers(1, 8))
    shape = draw(st.sampled_from(SHAPES))
    edges = edges_of(shape, num_ops)
    if shape == "random" and edges:
        edges = draw(st.lists(st.sampled_from(edges), max_size=12, unique=True))
    is_control = draw(st.lists(st.booleans(), min_size=len(edges), max_size=len(edges)))
    consumers: dict[tuple[int, int], list[int]] = {}
    for before, after in (
        edge for edge, is_one in zip(edges, is_control, strict=True) if not is_one
    ):
        consumers.setdefault((before, draw(st.integers(0, 1))), []).append(after)
    tensors = [
        Tensor(op, draw(SIZES), heads, draw(st.lists(st.booleans(), **exactly(len(heads)))))
        for (op, _), heads in consumers.items()
    ]
    label = draw(st.permutations(range(num_ops)))  # indices are not in topological order
    groups = st.one_of(st.none(), st.none(), st.integers(0, 1))
    graph = OpGraph.build(
        [f"scope_{op % 2}/op_{op}" for op in range(num_ops)],
        [
            Tensor(
                label[t.producer],
                t.num_bytes,
                [label[op] for op in t.consumers],
                t.consumer_on_host,
            )
            for t in tensors
        ],
        types=draw(
            st.lists(st.sampled_from(["Op", "Op", "Op", "Placeholder"]), **exactly(num_ops))
        ),
        control_edges=[
            (label[before], label[after])
            for (before, after), is_one in zip(edges, is_control, strict=True)
            if is_one
        ],
        colocation_group=draw(st.lists(groups, **exactly(num_ops))),
        resident_bytes=draw(st.lists(SIZES, **exactly(num_ops))),
        alias_of=draw(st.lists(st.just(-1), **exactly(num_ops))),
    )
    return labelled(graph)


def exactly(count: int) -> dict[str, int]:
    return {"min_size": count, "max_size": count}


@st.composite
def machines(draw: Any) -> Machine:
    """Draw a machine of two to four devices, with or without a host, with all features of links."""
    count = draw(st.integers(2, 4))
    has_host = draw(st.booleans())
    names = [f"{'CPU' if has_host and not number else 'GPU'}:{number}" for number in range(count)]
    costs = st.sampled_from([0.0, 0.0, 1.0, 40.0])
    slopes = st.sampled_from([0.0, 1e-4, 0.1])
    models = st.builds(CommModel, costs, slopes, costs, costs, slopes, costs, slopes, wait_us=costs)
    common = draw(models)
    devices = tuple(
        Device(
            name,
            name[:3],
            draw(st.sampled_from([0, 10**4, 2**50, 2**50, 2**60])),
            speed=draw(st.sampled_from([1.0, 1.0, 0.25, 3.0])),
            op_overhead_us=draw(st.sampled_from([0.0, 0.0, 2.0])),
        )
        for name in names
    )
    channel = draw(st.sampled_from(["", "bus"]))
    links = tuple(
        Link(src, dst, draw(st.sampled_from([common, draw(models)])), channel)
        for src in names
        for dst in names
        if src != dst
    )
    return Machine(devices, links, signal_us=draw(costs))


@st.composite
def problems(draw: Any) -> Problem:
    """Draw a problem; on a mixed machine, some ops can run on one device kind only.

    About half of the machines have contention.
    """
    graph, machine = draw(graphs()), draw(machines())
    times = {
        kind: np.array(draw(st.lists(TIMES_US, **exactly(graph.num_ops))))
        for kind in sorted({device.kind for device in machine.devices})
    }
    if len(times) == 2:
        able = draw(st.lists(st.sampled_from(["", "GPU", "CPU"]), **exactly(graph.num_groups)))
        fed = np.array([name == "Placeholder" for name in graph.types])
        fed = np.isin(graph.colocation_group, graph.colocation_group[fed])
        only = np.where(fed, "CPU", np.array(able)[graph.colocation_group])
        for kind, column in times.items():
            column[(only != "") & (only != kind)] = np.nan
    problem = Problem.build(graph, times, machine)
    seed = draw(st.one_of(st.none(), st.integers(0, 99)))
    return problem if seed is None else with_random_contention(problem, seed)


def through_files(problem: Problem, result: Any) -> tuple[Profile, PlacementFile]:
    """Return profile and placement after a round trip; written again, the files are equal."""
    with TemporaryDirectory() as folder:
        profile_path, placement_path = Path(folder, "profile.json"), Path(folder, "placement.json")
        api.write_profile(profile_path, Profile(problem))
        profile = api.read_profile(profile_path)
        first = profile_path.read_bytes()
        api.write_profile(profile_path, profile)
        assert profile_path.read_bytes() == first
        api.write_placement(placement_path, api.placement(profile, result))
        return profile, api.read_placement(placement_path)


def check_order(problem: Problem, placement: Placement) -> None:
    """Check that the order of each device, as control edges, gives no cycle with precedence."""
    graph = problem.graph
    every = np.ones(problem.num_ops, dtype=np.bool_)
    enforced = np.ones(len(graph.edges), dtype=np.bool_)
    added = order_edges(graph, placement, waits=every, awaited=every, enforced=enforced)
    ordered = OpGraph.build(graph.names, control_edges=np.concatenate((graph.edges, added)))
    assert len(topological_order(ordered.successors)) == problem.num_ops


@pytest.mark.parametrize("name", PLACERS)
@examples(12)
@given(problem=problems())
def test_a_problem_passes_the_pipeline(name: str, problem: Problem) -> None:
    (result, alone) = api.compare(Profile(problem), [QUICK[name], "single"], CONTEXT)
    schedule = result.schedule
    is_short = result.status is SolveStatus.OUT_OF_MEMORY
    assert {found.rule for found in violations(problem, schedule)} == (
        {"memory"} if is_short else set()
    )
    assert 0 <= result.lower_bound_us <= result.makespan_us
    if name == "pesto":
        assert objective(problem, schedule) <= objective(problem, alone.schedule)
    check_order(problem, schedule.placement)
    profile, placed = through_files(problem, result)
    again = api.simulate(profile, placed)
    assert again.makespan_us == result.makespan_us
    assert again.schedule.peak_bytes.tolist() == schedule.peak_bytes.tolist()


@examples(30)
@given(problem=problems(), num_nodes=st.integers(1, 8))
def test_a_coarse_problem_passes_the_pipeline(problem: Problem, num_nodes: int) -> None:
    coarse = api.coarsen(Profile(problem), num_nodes)
    assert coarse.members is not None
    assert sorted(op for node in coarse.members for op in node) == sorted(problem.graph.names)
    (result,) = api.compare(coarse, ["heft"], CONTEXT)
    assert {found.rule for found in violations(coarse.problem, result.schedule)} <= {"memory"}


@examples(2)
@given(problem=problems())
def test_the_same_search_writes_the_same_bytes(problem: Problem) -> None:
    written = []
    with TemporaryDirectory() as folder:
        path = Path(folder, "placement.json")
        for name in ("pesto", "metis"):
            for _ in range(2):
                (result,) = api.compare(Profile(problem), [QUICK[name]], CONTEXT)
                api.write_placement(path, api.placement(Profile(problem), result))
                written.append(path.read_bytes())
    assert written[::2] == written[1::2]


def test_a_graph_without_ops_takes_no_time() -> None:
    problem = on_gpus(OpGraph.build([]), [])
    for result in api.compare(Profile(problem), QUICK.values(), CONTEXT):
        assert result.makespan_us == 0
        assert violations(problem, result.schedule) == []
    assert api.coarsen(Profile(problem)).problem.num_ops == 0


def regular(shape: str, num_ops: int) -> Problem:
    """Return a problem of ops of 1 us with tensors of 1000 bytes."""
    consumers: dict[int, list[int]] = {}
    for before, after in edges_of(shape, num_ops):
        consumers.setdefault(before, []).append(after)
    tensors = [Tensor(op, 1000, heads) for op, heads in consumers.items()]
    names = [f"op_{op}" for op in range(num_ops)]
    return on_gpus(OpGraph.build(names, tensors), [1.0] * num_ops)


@pytest.mark.parametrize("shape", ["star out", "star in", "apart"])
def test_a_thousand_equal_ops(shape: str) -> None:
    problem = regular(shape, 1000)
    for result in api.compare(Profile(problem), QUICK.values(), CONTEXT):
        assert violations(problem, result.schedule) == []
        check_order(problem, result.schedule.placement)


def test_a_chain_of_ten_thousand_ops_stays_on_one_device() -> None:
    problem = regular("chain", 10_000)
    some = QUICK.values() if EXAMPLES > 1 else [QUICK["single"], QUICK["pesto"]]
    for result in api.compare(Profile(problem), some, CONTEXT):
        assert violations(problem, result.schedule) == []
        if result.strategy in ("single", "pesto"):
            assert result.makespan_us == 10_000
            assert len(set(result.schedule.device.tolist())) == 1
            check_order(problem, result.schedule.placement)
