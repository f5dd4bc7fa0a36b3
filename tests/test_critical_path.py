"""Tests of causes and of the critical path: on schedules by hand, and on random schedules."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import on_gpus
from random_problems import every_third_contended, random_placement, random_problem

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.evaluation.critical_path import (
    Cause,
    CauseFinder,
    Reason,
    SegmentKind,
    cause_of,
    schedule_critical_path,
)
from pesto_cli.evaluation.simulator import Simulator, list_schedule, replay

GPU0, GPU1 = 1, 2
LOSSES = {"sender_us": 2.0, "sender_us_per_byte": 0.5, "receiver_us": 3.0}
WAITS = {"wait_us": 7.0}


def with_ends(problem: Problem, **ends: float) -> Problem:
    """Return the problem with this overhead and `wait_us` on every link, and this `signal_us`."""
    signal_us = ends.pop("signal_us", problem.machine.signal_us)
    machine = replace(problem.machine, signal_us=signal_us)
    links = tuple(replace(link, comm=replace(link.comm, **ends)) for link in machine.links)
    return replace(problem, machine=replace(machine, links=links))


@pytest.mark.parametrize("ends", [{}, LOSSES, WAITS, LOSSES | WAITS], ids=str)
def test_the_critical_path_of_a_schedule_is_as_long_as_the_makespan(ends: dict[str, float]) -> None:
    seen: set[Reason] = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        num_devices = int(rng.integers(2, 5))
        plain = random_problem(
            seed, int(rng.integers(1, 25)), memory=False, num_devices=num_devices
        )
        problem = every_third_contended(with_ends(plain, **ends), seed)
        device = random_placement(problem, seed)
        simulator = Simulator(problem)
        listed = simulator.list_schedule(device, rng.random(problem.num_ops).round(1))
        by_chance = Placement(device, an_order(problem, device, rng))
        for schedule in (listed, simulator.replay(by_chance)):
            chain = schedule_critical_path(problem, schedule)
            assert chain[0].start_us == 0
            assert chain[-1].end_us == schedule.makespan_us
            ends_us = [piece.end_us for piece in chain[:-1]]
            assert ends_us == [piece.start_us for piece in chain[1:]]
            seen |= {piece.cause.why for piece in chain}
            check_causes(problem, schedule, idles=schedule is not listed)
    assert seen == set(Reason) - ({Reason.SENDER} if "wait_us" not in ends else set())


@pytest.mark.parametrize("seed", [275, 1084, 2102])
def test_a_signal_may_be_sent_at_the_instant_at_which_its_sender_starts_an_op(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_devices = int(rng.integers(2, 4))
    plain = random_problem(seed, int(rng.integers(5, 25)), memory=False, num_devices=num_devices)
    is_empty = rng.random(plain.num_ops) < 0.7  # many ops start and end at one instant
    plain = replace(plain, time_us=np.where(is_empty[:, None], 0.0, plain.time_us.round()))
    problem = with_ends(plain, wait_us=2.0, signal_us=0.0)
    priority = rng.random(problem.num_ops).round(1)
    schedule = Simulator(problem).list_schedule(random_placement(problem, seed), priority)
    check_causes(problem, schedule, idles=False)


def an_order(problem: Problem, device: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return ranks by a random topological order."""
    graph, rank = problem.graph, np.zeros(problem.num_ops, dtype=np.int64)
    waiting, placed = graph.predecessors.degree.copy(), np.zeros(problem.num_devices, np.int64)
    first = np.flatnonzero((waiting == 0) & problem.is_feed).tolist()
    ready = np.flatnonzero((waiting == 0) & ~problem.is_feed).tolist()
    while first or ready:
        op = first.pop() if first else ready.pop(rng.integers(len(ready)))
        rank[op] = placed[device[op]]
        placed[device[op]] += 1
        waiting[graph.successors[op]] -= 1
        ready += [after for after in graph.successors[op].tolist() if waiting[after] == 0]
    return rank


def check_causes(problem: Problem, schedule: Schedule, *, idles: bool) -> None:
    """Check that every cause ends exactly when the op or transfer that it delays starts."""
    causes = CauseFinder(problem, schedule)
    for op in range(problem.num_ops):
        cause = causes.of_op(op)
        assert cause.until_us == schedule.start_us[op]
        assert idles or cause.why is not Reason.ORDER
    for row in range(len(schedule.transfers)):
        assert causes.of_transfer(row).until_us == schedule.transfers.start_us[row]


def by_priority(problem: Problem, device: list[int], priority: list[float]) -> Schedule:
    return list_schedule(problem, np.array(device, int), np.array(priority))


def test_a_diamond_over_two_devices(diamond: Problem) -> None:
    # a ends at 1, its tensor arrives at c at 3, c ends at 13, and c's tensor arrives at 15.
    schedule = by_priority(diamond, [GPU0, GPU0, GPU1, GPU0], [3, 2, 1, 0])
    chain = schedule_critical_path(diamond, schedule)
    assert [(piece.kind, piece.op, piece.start_us) for piece in chain] == [
        (SegmentKind.OP, 0, 0),
        (SegmentKind.TRANSFER, 0, 1),
        (SegmentKind.OP, 2, 3),
        (SegmentKind.TRANSFER, 2, 13),
        (SegmentKind.OP, 3, 15),
    ]
    assert cause_of(diamond, schedule, 0) == Cause(Reason.START)
    assert cause_of(diamond, schedule, 1) == Cause(Reason.PREDECESSOR, 0, -1, 1, 1)
    assert cause_of(diamond, schedule, 2).why is Reason.TRANSFER


def test_a_busy_device_and_a_busy_link() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 1000, [2]), Tensor(0, 3000, [2])])
    schedule = by_priority(on_gpus(graph, [1, 5, 1]), [GPU0, GPU0, GPU1], [2, 1, 0])
    causes = CauseFinder(on_gpus(graph, [1, 5, 1]), schedule)
    assert causes.of_op(1) == Cause(Reason.DEVICE, 0, -1, 1, 1)
    assert causes.of_transfer(1) == Cause(Reason.LINK, 0, 0, 3, 3)
    assert causes.of_op(2) == Cause(Reason.TRANSFER, 0, 1, 7, 7)


def test_a_signal_is_a_separate_segment() -> None:
    graph = OpGraph.build(list("ab"), control_edges=[(0, 1)])
    problem = on_gpus(graph, [1, 1])
    chain = schedule_critical_path(problem, by_priority(problem, [GPU0, GPU1], [0, 0]))
    spans = [(piece.kind, piece.start_us, piece.end_us) for piece in chain]
    assert spans == [
        (SegmentKind.OP, 0, 1),
        (SegmentKind.SIGNAL, 1, 1.5),
        (SegmentKind.OP, 1.5, 2.5),
    ]


def test_an_idle_device_due_to_the_order_differs_from_a_busy_device() -> None:
    # On GPU:1, b waits until a's tensor arrives at 12; c could have run from the start.
    graph = OpGraph.build(list("abc"), [Tensor(0, 1000, [1])])
    problem = on_gpus(graph, [10, 4, 3])
    device = np.array([GPU0, GPU1, GPU1])
    schedule = replay(problem, Placement(device, np.array([0, 0, 1])))
    causes = CauseFinder(problem, schedule)
    assert causes.of_op(2) == Cause(Reason.ORDER, 1, -1, 16, 16)
    assert causes.idle_us(2) == 12
    other = replay(problem, Placement(device, np.array([0, 1, 0])))
    assert CauseFinder(problem, other).of_op(1).why is Reason.TRANSFER


def test_a_sender_that_computes_delays_its_tensor() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 1000, [1])])
    problem = with_ends(on_gpus(graph, [10, 5, 3]), wait_us=4.0)
    device = [GPU0, GPU1, GPU0]
    first = by_priority(problem, device, [0, 0, 1])
    assert CauseFinder(problem, first).of_transfer(0) == Cause(Reason.PREDECESSOR, 0, -1, 13, 13)
    behind = by_priority(problem, device, [1, 0, 0])
    assert CauseFinder(problem, behind).of_transfer(0) == Cause(Reason.SENDER, 0, -1, 10, 13)
    assert schedule_critical_path(problem, behind)[1].kind is SegmentKind.SENDER


def test_an_empty_graph_has_an_empty_critical_path() -> None:
    problem = on_gpus(OpGraph.build([]), [])
    assert schedule_critical_path(problem, by_priority(problem, [], [])) == ()
