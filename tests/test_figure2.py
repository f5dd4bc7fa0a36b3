"""The example of docs/formulation.md, similar to Figure 2 of the Pesto paper."""

from pathlib import Path

import numpy as np
import pytest
from brute_force import optimum_us

from pesto_cli.bounds import lower_bound_us, tails
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.evaluation.simulator import list_schedule, replay
from pesto_cli.evaluation.violations import violations
from pesto_cli.files.profile import read_profile
from pesto_cli.ilp import solve_ilp
from pesto_cli.strategies import Context
from pesto_cli.strategies.run import run

ROOT = Path(__file__).parent.parent
PROBLEM = read_profile(ROOT / "examples" / "figure2.profile.json").problem
US_PER_CHARACTER = 2


def naive_order() -> Schedule:
    """The optimal placement, with priority by the number of ops on the longest path after an op."""
    return list_schedule(PROBLEM, optimum().device, _hops(PROBLEM))


def naive_placement() -> Schedule:
    """The same order, with ops assigned to the GPUs in turn."""
    device = np.zeros(PROBLEM.num_ops, dtype=np.int64)
    device[PROBLEM.graph.topological_order] = np.arange(PROBLEM.num_ops) % 2
    return list_schedule(PROBLEM, device, _hops(PROBLEM))


def optimum() -> Schedule:
    """The optimal schedule: F before D, and GPU:1 waits for C although it could start G."""
    order = {0: "ABFDE", 1: "CG"}
    device, rank = np.zeros((2, PROBLEM.num_ops), dtype=np.int64)
    for gpu, names in order.items():
        for place, name in enumerate(names):
            device[PROBLEM.graph.index_of[name]] = gpu
            rank[PROBLEM.graph.index_of[name]] = place
    return replay(PROBLEM, Placement(device, rank))


SCHEDULES = {
    "naive order": (naive_order, 140),
    "naive placement": (naive_placement, 150),
    "optimum": (optimum, 110),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_have_the_times_of_the_page(name):
    make, makespan_us = SCHEDULES[name]
    schedule = make()
    assert schedule.makespan_us == makespan_us
    assert violations(PROBLEM, schedule) == []


@pytest.mark.parametrize("solver", ["cpsat", "cbc"])
def test_solvers_find_the_optimum(solver):
    found = solve_ilp(PROBLEM, Limits(), solver=solver)
    assert found.status == SolveStatus.OPTIMAL
    assert found.objective_us == pytest.approx(110)
    assert optimum_us(PROBLEM) == 110


def with_odd_times(seed: int) -> Problem:
    """Return the same graph with times that are not multiples of a power of ten."""
    stretch = 1 + np.random.default_rng(seed).random((PROBLEM.num_ops, 1)) / 3
    times = dict(zip(PROBLEM.kinds, (PROBLEM.time_us * stretch).T, strict=True))
    return Problem.build(PROBLEM.graph, times, PROBLEM.machine)


@pytest.mark.parametrize("seed", range(3))
def test_an_optimum_ends_the_search_although_the_solver_rounds(seed):
    context = Context(Limits(time_limit_s=100))
    result = run(with_odd_times(seed), "pesto", context)
    assert result.status is SolveStatus.OPTIMAL
    assert result.runtime_s < 50


def test_lower_bound_is_that_of_the_page():
    assert lower_bound_us(PROBLEM) == pytest.approx(105)


@pytest.mark.parametrize("name", SCHEDULES)
def test_page_shows_the_schedules(name):
    assert gantt(PROBLEM, SCHEDULES[name][0]()) in (ROOT / "docs" / "formulation.md").read_text()


def gantt(problem: Problem, schedule: Schedule) -> str:
    """Return one line for every device and link; bars have the op, or the producer of a tensor."""
    names, machine = problem.graph.names, problem.machine
    spans = [
        (machine.devices[d].name, start, end, name)
        for d, start, end, name in zip(
            schedule.device, schedule.start_us, schedule.end_us, names, strict=True
        )
    ]
    transfers = schedule.transfers
    for tensor, dst, start, end in zip(
        transfers.tensor, transfers.dst, transfers.start_us, transfers.end_us, strict=True
    ):
        producer = problem.graph.tensor_producer[tensor]
        src = schedule.device[producer]
        link = machine.channel_names[machine.channel[src, dst]]
        spans.append((link, start, end, names[producer].lower()))
    lines = []
    for row in [*(device.name for device in machine.devices), *machine.channel_names]:
        line = [" "] * round(schedule.makespan_us / US_PER_CHARACTER)
        for _, start, end, name in (span for span in spans if span[0] == row):
            first, last = (round(time / US_PER_CHARACTER) for time in (start, end))
            line[first:last] = f"[{name * (last - first - 2)}]"
        lines.append(f"{row:<14} {''.join(line)}".rstrip())
    return "\n".join(lines) + f"  {schedule.makespan_us:.0f} us"


def _hops(problem: Problem) -> np.ndarray:
    return tails(problem.graph, np.ones(problem.num_ops))


if __name__ == "__main__":
    for name, (make, _) in SCHEDULES.items():
        print(f"{name}\n\n{gantt(PROBLEM, make())}\n")
