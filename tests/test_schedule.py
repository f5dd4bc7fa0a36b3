"""Tests of the independent check: it finds each rule broken by hand, and no other."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import on_gpus, two_gpus
from random_problems import (
    every_third_contended,
    random_placement,
    random_problem,
    with_random_links,
)

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, shortfall_bytes
from pesto_cli.evaluation.simulator import list_schedule, upward_rank
from pesto_cli.evaluation.violations import violations
from pesto_cli.files.tensorflow_names import labelled

GPU0, GPU1 = 1, 2


@pytest.fixture
def schedule(diamond: Problem) -> Schedule:
    device = np.array([GPU0, GPU0, GPU1, GPU0])
    return list_schedule(diamond, device, upward_rank(diamond, device))


def rules(problem: Problem, schedule: Schedule) -> set[str]:
    return {violation.rule for violation in violations(problem, schedule)}


def changed(column: np.ndarray, op: int, value: float) -> np.ndarray:
    column = column.copy()
    column[op] = value
    return column


def test_a_simulated_schedule_breaks_no_rule(diamond: Problem, schedule: Schedule) -> None:
    assert violations(diamond, schedule) == []


def test_an_op_that_starts_too_early_breaks_precedence(
    diamond: Problem, schedule: Schedule
) -> None:
    early = replace(
        schedule,
        start_us=changed(schedule.start_us, 2, 2.5),
        end_us=changed(schedule.end_us, 2, 12.5),
    )
    # Its output is then sent later than possible.
    assert rules(diamond, early) == {"precedence", "idle"}


def test_an_op_that_takes_too_long_or_short_breaks_duration(
    diamond: Problem, schedule: Schedule
) -> None:
    longer = replace(schedule, end_us=changed(schedule.end_us, 3, 99))
    assert rules(diamond, longer) == {"duration"}
    never = replace(schedule, end_us=changed(schedule.end_us, 3, np.nan))
    assert "duration" in rules(diamond, never)


def test_two_ops_at_once_break_overlap() -> None:
    problem = on_gpus(OpGraph.build(["a", "b"]), [5, 5])
    good = list_schedule(problem, np.array([GPU0, GPU0]), np.zeros(2))
    both = replace(good, start_us=np.zeros(2), end_us=np.full(2, 5.0))
    assert rules(problem, both) == {"overlap"}


def test_two_transfers_at_once_break_overlap() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 1000, [1]), Tensor(0, 1000, [2])])
    problem = on_gpus(graph, [1, 1, 1])
    good = list_schedule(problem, np.array([GPU0, GPU1, GPU1]), np.zeros(3))
    assert violations(problem, good) == []
    together = replace(good.transfers, start_us=np.ones(2), end_us=np.full(2, 3.0))
    assert "overlap" in rules(problem, replace(good, transfers=together))


def test_a_missing_or_superfluous_transfer_is_found(diamond: Problem, schedule: Schedule) -> None:
    sent = schedule.transfers
    missing = replace(
        sent,
        tensor=sent.tensor[:-1],
        dst=sent.dst[:-1],
        start_us=sent.start_us[:-1],
        end_us=sent.end_us[:-1],
    )
    assert "transfer" in rules(diamond, replace(schedule, transfers=missing))
    assert "transfer" in rules(
        diamond, replace(schedule, transfers=replace(sent, dst=sent.dst * 0))
    )


def test_a_device_that_may_not_run_the_op_breaks_affinity(
    diamond: Problem, schedule: Schedule
) -> None:
    on_cpu = replace(schedule, device=changed(schedule.device, 1, 0))
    assert "affinity" in rules(diamond, on_cpu)


def test_a_split_group_breaks_colocation(diamond: Problem, schedule: Schedule) -> None:
    together = diamond.constrained(colocation_group=np.array([0, 1, 1, 2]))
    assert rules(together, schedule) == {"colocation"}


def test_ranks_that_are_not_0_to_n_are_found(diamond: Problem, schedule: Schedule) -> None:
    assert "order" in rules(diamond, replace(schedule, rank=schedule.rank * 0))


def test_a_peak_above_the_capacity_breaks_memory(diamond: Problem, schedule: Schedule) -> None:
    small = replace(diamond, machine=two_gpus(memory_bytes=1500))
    assert rules(small, schedule) == {"memory"}
    assert shortfall_bytes(small, schedule).tolist() == [0, 500, 500]


def test_a_wrong_peak_is_found(diamond: Problem, schedule: Schedule) -> None:
    assert rules(diamond, replace(schedule, peak_bytes=schedule.peak_bytes + 1)) == {"peak"}


def test_an_op_or_a_transfer_that_starts_later_than_it_could_is_idle(
    diamond: Problem, schedule: Schedule
) -> None:
    late = replace(
        schedule,
        start_us=changed(schedule.start_us, 3, 20),
        end_us=changed(schedule.end_us, 3, 21),
    )
    assert rules(diamond, late) == {"idle"}
    sent = schedule.transfers
    shift_us = np.array([0, 0.5])
    back = replace(sent, start_us=sent.start_us + shift_us, end_us=sent.end_us + shift_us)
    assert rules(diamond, replace(schedule, transfers=back)) == {"idle", "precedence"}


def test_a_feed_that_starts_after_0_is_found() -> None:
    graph = labelled(OpGraph.build(["work", "x"], types=["Work", "Placeholder"]))
    problem = Problem.build(graph, {"CPU": np.array([5.0, 0.0])}, two_gpus())
    good = list_schedule(problem, np.zeros(2, dtype=np.int64), np.zeros(2))
    assert violations(problem, good) == []
    late = replace(good, rank=np.array([0, 1]), start_us=np.array([0.0, 5]), end_us=np.full(2, 5.0))
    assert rules(problem, late) == {"feed"}


def bus(wait_us: float = 0.0) -> Machine:
    """Return a machine of three GPUs; all links share one queue, and each transfer takes 2 us."""
    names = ["GPU:0", "GPU:1", "GPU:2"]
    comm = CommModel(2.0, 0.0, wait_us=wait_us)
    return Machine(
        tuple(Device(name, "GPU", 10**9) for name in names),
        tuple(Link(src, dst, comm, "bus") for src in names for dst in names if src != dst),
    )


def sent(schedule: Schedule) -> list[tuple[int, int]]:
    transfers = schedule.transfers
    order = np.argsort(transfers.start_us)
    return list(zip(transfers.tensor[order].tolist(), transfers.dst[order].tolist(), strict=True))


def swapped(schedule: Schedule, problem: Problem, first: int, second: int) -> Schedule:
    """Return the schedule with two equally long transfers swapped, and later starts after them."""
    times = schedule.transfers
    rows = np.arange(len(times))
    rows[[first, second]] = second, first
    there_us = np.zeros((problem.graph.num_tensors, problem.num_devices))
    other = replace(times, start_us=times.start_us[rows], end_us=times.end_us[rows])
    there_us[other.tensor, other.dst] = other.end_us
    start_us = schedule.start_us.copy()
    takes = problem.graph.consumers
    np.maximum.at(start_us, takes, there_us[problem.graph.consumer_tensor, schedule.device[takes]])
    end_us = start_us + schedule.end_us - schedule.start_us
    return replace(schedule, transfers=other, start_us=start_us, end_us=end_us)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([2.0, 1.0], [(1, 2), (0, 1)]),  # by end of producer
        ([1.0, 1.0], [(0, 1), (1, 2)]),  # then by producer
    ],
)
def test_a_link_that_is_not_first_come_first_served_is_found(
    times: list[float], expected: list[tuple[int, int]]
) -> None:
    graph = OpGraph.build(list("abcd"), [Tensor(0, 9, [2]), Tensor(1, 9, [3])])
    problem = on_gpus(graph, [*times, 0.0, 0.0], bus())
    good = list_schedule(problem, np.array([0, 1, 1, 2]), np.zeros(4))
    assert sent(good) == expected
    assert violations(problem, good) == []
    turned = swapped(good, problem, 0, 1)
    assert "queue" in rules(problem, turned)


def test_tensors_of_one_op_queue_by_tensor_then_by_destination() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 9, [1, 2]), Tensor(0, 9, [1])])
    problem = on_gpus(graph, [1.0, 0.0, 0.0], bus())
    good = list_schedule(problem, np.array([0, 1, 2]), np.zeros(3))
    assert sent(good) == [(0, 1), (0, 2), (1, 1)]
    assert violations(problem, good) == []
    for first, second in ((0, 1), (1, 2), (0, 2)):
        assert "queue" in rules(problem, swapped(good, problem, first, second))


@pytest.mark.parametrize(("wait_us", "expected"), [(0.0, [0, 1]), (3.0, [1, 0]), (1.0, [0, 1])])
def test_a_tensor_queues_when_the_delay_by_its_sender_ends(
    wait_us: float, expected: list[int]
) -> None:
    """`a` ends at 1, but its device continues to compute; `b` ends at 2, and its device is idle."""
    graph = OpGraph.build(list("abxyz"), [Tensor(0, 9, [3]), Tensor(1, 9, [4])])
    problem = on_gpus(graph, [1.0, 2.0, 8.0, 0.0, 0.0], bus(wait_us))
    good = list_schedule(problem, np.array([0, 1, 0, 2, 2]), np.array([9.0, 9, 1, 1, 1]))
    assert [tensor for tensor, _ in sent(good)] == expected
    assert violations(problem, good) == []
    assert "queue" in rules(problem, swapped(good, problem, 0, 1))


def full_of_ties(seed: int) -> Problem:
    """Return a problem of whole times with zero-time links, overhead, delays, buses, contention."""
    problem = with_random_links(random_problem(seed, 9, memory=False), seed)
    return every_third_contended(problem, seed)


@pytest.mark.parametrize("seeds", [range(at, at + 150) for at in range(0, 450, 150)], ids=str)
def test_schedules_full_of_ties_break_no_rule(seeds: range) -> None:
    """There are many events in one instant."""
    for seed in seeds:
        problem = full_of_ties(seed)
        priority = np.random.default_rng(seed).integers(0, 3, problem.num_ops).astype(float)
        schedule = list_schedule(problem, random_placement(problem, seed), priority)
        assert violations(problem, schedule) == []


def test_a_shift_of_any_time_is_found() -> None:
    rng = np.random.default_rng(0)
    for seed in range(100):
        problem = full_of_ties(seed)
        good = list_schedule(problem, random_placement(problem, seed), rng.random(9))
        shift_us = rng.choice([-1, 1]) * rng.uniform(0.1, 2)
        for times in (good, good.transfers):
            for name in ("start_us", "end_us"):
                column = getattr(times, name)
                if len(column) == 0:
                    continue
                row = int(rng.integers(len(column)))
                wrong = replace(times, **{name: changed(column, row, column[row] + shift_us)})
                whole = wrong if times is good else replace(good, transfers=wrong)
                assert violations(problem, whole) != []


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("device", np.array([1, 1, 7, 1]), "affinity"),
        ("device", np.array([1, 1, -1, 1]), "affinity"),
        ("device", np.array([1, 1, 2]), "affinity"),
        ("device", np.array([1.0, 1, 2, 1]), "affinity"),
        ("rank", np.array([0, 1, 0, 10**9]), "order"),
        ("rank", np.array([[0, 1, 0, 2]]), "order"),
        ("start_us", np.array([0.0, np.nan, 0, 0]), "duration"),
        ("end_us", np.zeros(5), "duration"),
        ("peak_bytes", np.zeros(4, dtype=np.int64), "peak"),
    ],
)
def test_malformed_columns_are_reported(
    diamond: Problem, schedule: Schedule, name: str, value: np.ndarray, rule: str
) -> None:
    assert rules(diamond, replace(schedule, **{name: value})) == {rule}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensor", np.array([0, 3])),
        ("tensor", np.array([0, -1])),
        ("dst", np.array([2, 3])),
        ("dst", np.array([2])),
        ("start_us", np.array([1.0, np.inf])),
        ("end_us", np.zeros(1)),
    ],
)
def test_malformed_transfers_are_reported(
    diamond: Problem, schedule: Schedule, name: str, value: np.ndarray
) -> None:
    wrong = replace(schedule.transfers, **{name: value})
    assert rules(diamond, replace(schedule, transfers=wrong)) == {"transfer"}
