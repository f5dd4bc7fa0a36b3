"""Baechi's placers agree with a plain implementation, are fast, and heed the time limit."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from earliest_reference import Earliest
from random_problems import random_problem, with_random_links

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.violations import violations
from pesto_cli.strategies import Context
from pesto_cli.strategies.baechi import SETTINGS, MEtf, MSct, MTopo, columns, earliest, favourites
from pesto_cli.strategies.baechi.columns import NONE
from pesto_cli.strategies.baechi.earliest import earliest_first
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph, prepared
from pesto_cli.strategies.baechi.preprocessing import fused


def random_children(graph: PlacementGraph, rng: np.random.Generator) -> np.ndarray:
    children = np.full(graph.num_nodes, NONE, dtype=np.int64)
    if rng.random() < 0.6:
        for tail, head in graph.edges[rng.random(len(graph.edges)) < 0.5]:
            children[tail] = head
    return children


@pytest.mark.parametrize("least_block", [2, 32])
def test_the_schedule_is_that_of_the_plain_implementation(
    monkeypatch: pytest.MonkeyPatch, least_block: int
) -> None:
    monkeypatch.setattr(columns, "LEAST_BLOCK", least_block)
    num_forced = num_awake = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(3, 30))
        problem = random_problem(seed, size, num_devices=int(rng.integers(2, 5)))
        if rng.random() < 0.4:
            problem = with_random_links(problem, seed)
        settings = replace(
            list(SETTINGS.values())[int(rng.integers(len(SETTINGS)))],
            reserve_memory=bool(rng.random() < 0.5),
            signals_cost_transfers=bool(rng.random() < 0.5),
            memory_fraction=float(rng.choice([1.0, 0.5])),
        )
        graph = prepared(problem, settings)
        children = random_children(graph, rng)
        plan = earliest_first(problem, graph, settings, children)
        plain = Earliest(problem, graph, settings, children.tolist())
        plain.run()
        assert plan.device.tolist() == plain.device, seed
        assert plan.start_us.tolist() == plain.start, seed
        assert plan.num_forced == plain.num_forced, seed
        num_forced += plain.num_forced
        num_awake += bool((children != NONE).any())
    assert num_forced > 20
    assert num_awake > 20


def contracted(
    edges: list[tuple[int, int]], group: list[int], place: list[int], num_ops: int
) -> list[int]:
    """Contract edges within groups one by one, on sets of ops; return the first op of each set."""
    parts = {op: {op} for op in range(num_ops)}
    part_of = {op: op for op in range(num_ops)}
    joined = set(edges)
    waiting = deque(sorted(edges, key=lambda edge: (place[edge[0]], place[edge[1]])))
    while waiting:
        tail, head = waiting.popleft()
        out = {edge for edge in joined if edge[0] == tail}
        into = {edge for edge in joined if edge[1] == head}
        can_be = group[tail] == group[head] and min(len(out), len(into)) == 1
        if (tail, head) in joined and can_be:
            parts[tail] |= parts.pop(head)
            moved = sorted(edge for edge in joined if head in edge and edge != (tail, head))
            joined -= {(tail, head), *moved}
            ends = [(tail if a == head else a, tail if b == head else b) for a, b in moved]
            new = [edge for edge in ends if edge not in joined]
            joined |= set(new)
            waiting.extend([e for e in new if e[1] == tail] + [e for e in new if e[0] == tail])
    for members in parts.values():
        first = min(members, key=lambda op: place[op])
        part_of |= dict.fromkeys(members, first)
    return [part_of[op] for op in range(num_ops)]


def test_fusion_gives_the_result_of_contracting_edges_one_by_one() -> None:
    num_fused = 0
    for seed in range(800):
        rng = np.random.default_rng(seed)
        num_ops = int(rng.integers(1, 12))
        pairs = rng.integers(0, num_ops, (int(rng.integers(0, 2 * num_ops + 1)), 2))
        order = rng.permutation(num_ops)
        edges = sorted({(int(order[a]), int(order[b])) for a, b in pairs if a < b})
        place = np.argsort(order)
        group = rng.integers(0, int(rng.integers(1, 4)), num_ops)
        found = fused(
            np.array(edges, dtype=np.int64).reshape(-1, 2), group, np.ones(num_ops, bool), place
        )
        expected = contracted(edges, group.tolist(), place.tolist(), num_ops)
        assert found.tolist() == expected, seed
        num_fused += len(set(expected)) < num_ops
    assert num_fused > 150


PLACERS = {"m-topo": MTopo(), "m-etf": MEtf(), "m-sct": MSct()}


def on_two_gpus(num_ops: int, tensors: list[Tensor]) -> Problem:
    graph = OpGraph.build([f"op{number}" for number in range(num_ops)], tensors)
    times = np.random.default_rng(0).integers(1, 100, num_ops).astype(np.float64)
    return Problem.build(graph, {"GPU": times}, PRESETS["v100x2-nvlink"])


def star(num_ops: int) -> Problem:
    return on_two_gpus(num_ops, [Tensor(0, 10**5, list(range(1, num_ops)))])


def star_of_tensors(num_ops: int) -> Problem:
    return on_two_gpus(num_ops, [Tensor(0, 10**5, [op]) for op in range(1, num_ops)])


def join(num_ops: int) -> Problem:
    return on_two_gpus(num_ops, [Tensor(op, 10**3, [num_ops - 1]) for op in range(num_ops - 1)])


@pytest.mark.parametrize("shape", [star, star_of_tensors, join])
@pytest.mark.parametrize("name", PLACERS)
def test_an_op_with_ten_thousand_neighbours_is_placed(
    name: str, shape: Callable[[int], Problem]
) -> None:
    """This would take minutes if each step tested all ready ops, or all neighbours of an op."""
    problem = shape(10_000)
    solution = PLACERS[name](problem, Context())
    assert not violations(problem, solution.schedule)


@pytest.mark.parametrize("name", PLACERS)
@pytest.mark.parametrize("stopped", [False, True])
def test_after_the_time_limit_the_rest_is_placed_without_looking_ahead(
    monkeypatch: pytest.MonkeyPatch, name: str, stopped: bool
) -> None:
    def looked_ahead(until: int, *columns: object) -> None:
        calls.append(until)
        schedule(until, *columns)

    calls: list[int] = []
    schedule = earliest.schedule
    monkeypatch.setattr(earliest, "schedule", looked_ahead)
    monkeypatch.setattr(favourites, "FEW_EDGES", 10)
    limits = Limits(time_limit_s=600.0 if stopped else 0.0)
    if stopped:
        limits.stop.set()
    problem = star(5000)
    solution = PLACERS[name](problem, Context(limits))
    assert not violations(problem, solution.schedule)
    assert len(calls) == (name != "m-topo")


def test_the_rest_is_placed_by_earliest_end() -> None:
    """Eight equal ops on two devices, none of which is scheduled before the time is over."""
    problem = on_two_gpus(8, [])
    problem = replace(problem, time_us=np.full((8, 1), 10.0))
    settings = SETTINGS["free"]
    graph = prepared(problem, settings)
    nodes = columns.nodes_of(graph, settings, np.full(8, NONE))
    links = columns.links_of(problem, settings)
    needed = columns.needed_of(problem, graph, settings)
    state = columns.start_of(problem, nodes, settings)
    earliest.schedule_the_rest(nodes, links, needed, state)
    assert state.device.tolist() == [1, 2] * 4
    assert state.start.tolist() == [0.0, 0.0, 10.0, 10.0, 20.0, 20.0, 30.0, 30.0]


def test_in_deterministic_mode_the_time_limit_does_not_end_the_algorithm() -> None:
    problem = star(3000)
    limited = Context(Limits(time_limit_s=0.0, deterministic=True))
    for placer in PLACERS.values():
        found, expected = placer(problem, limited), placer(problem, Context())
        assert (found.schedule.start_us == expected.schedule.start_us).all()
