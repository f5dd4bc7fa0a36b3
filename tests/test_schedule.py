"""The checker: each rule, broken once by hand, is found; and nothing else is."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import on_gpus, two_gpus

from pesto_cli.graph import OpGraph, Tensor
from pesto_cli.problem import Problem
from pesto_cli.schedule import Schedule, shortfall_bytes, violations
from pesto_cli.simulate import list_schedule, upward_rank

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
    assert rules(diamond, early) == {"precedence"}


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


def test_ranks_that_are_no_order_are_found(diamond: Problem, schedule: Schedule) -> None:
    assert "order" in rules(diamond, replace(schedule, rank=schedule.rank * 0))


def test_a_peak_above_the_capacity_breaks_memory(diamond: Problem, schedule: Schedule) -> None:
    small = replace(diamond, machine=two_gpus(memory_bytes=1500))
    assert rules(small, schedule) == {"memory"}
    assert shortfall_bytes(small, schedule).tolist() == [0, 500, 500]


def test_a_wrong_peak_is_found(diamond: Problem, schedule: Schedule) -> None:
    assert rules(diamond, replace(schedule, peak_bytes=schedule.peak_bytes + 1)) == {"peak"}
