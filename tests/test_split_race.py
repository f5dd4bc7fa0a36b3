"""The race of schedules with split ops, and the restarts of its winner."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from test_meshes import chain
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import DataParallel
from pesto_cli.strategies.split_search import race
from pesto_cli.strategies.split_search.race import (
    MOST_RESTARTS,
    RACE,
    REFINEMENT_US_PER_OP,
    RESTARTS_SHARE,
    Entry,
    run_race,
)
from pesto_cli.strategies.time_shares import shares

Call = tuple[Solution, Limits]


@pytest.fixture(scope="module")
def problem() -> Problem:
    return api.profile(exported(chain), "v100x4-nvlink", parts=(2, 4)).problem


@pytest.fixture(scope="module")
def start(problem: Problem) -> Solution:
    return DataParallel()(problem, Context())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Refinements that do nothing; the calls are collected."""
    found = list[Call]()

    def recorded(solution: Solution, context: Context, limits: Limits, source: str) -> Solution:
        found.append((solution, limits))
        return replace(solution)

    monkeypatch.setattr(race, "_refined", recorded)
    return found


def limits_for(start: Solution, num_restarts: float) -> Limits:
    restart_s = REFINEMENT_US_PER_OP * start.problem.num_ops / 1e6
    return Limits(num_restarts * restart_s / RESTARTS_SHARE, seed=7, deterministic=True)


@pytest.mark.parametrize(
    ("room", "number"), [(1.9, 0), (3.5, 3), (2.0 * MOST_RESTARTS, MOST_RESTARTS)]
)
def test_the_winner_begins_again_at_its_start_with_other_seeds(
    start: Solution, calls: list[Call], room: float, number: int
) -> None:
    better, limits = replace(start), limits_for(start, room)
    Entry("way", start, better).refined_with_restarts(Context(), limits)
    assert len(calls) == number + 1
    assert all(solution is start for solution, _ in calls[:-1])
    assert calls[-1][0] is better
    assert [each.seed for _, each in calls] == [*range(8, 8 + number), 7]
    assert sum(each.time_limit_s for _, each in calls) == pytest.approx(limits.time_limit_s)


def test_the_result_of_an_earlier_search_does_not_begin_again(
    start: Solution, calls: list[Call]
) -> None:
    entry = Entry("way", start, start, was_searched=True)
    entry.refined_with_restarts(Context(), limits_for(start, 5.0))
    assert len(calls) == 1


def test_restarts_do_not_make_the_step_longer(start: Solution) -> None:
    limits = limits_for(start, 3.0)
    first = Entry("way", start, start).refined(Context(), limits)
    last = first.refined_with_restarts(Context(), limits)
    assert last.best.objective <= first.best.objective <= start.objective
    assert last.start is start


def test_fewer_schedules_are_refined_in_each_round(start: Solution, calls: list[Call]) -> None:
    left, spent = raced([start.makespan_us * (1 + 0.01 * place) for place in range(8)], start)
    assert [entry.name for entry in left] == [str(place) for place in range(RACE[-1][0])]
    assert len(calls) == sum(number for number, *_ in RACE)
    assert spent == pytest.approx(2.0 * sum(share for _, share, _ in RACE))
    assert sum(limits.time_limit_s for _, limits in calls) == pytest.approx(50.0 * spent)


def test_schedules_that_are_much_longer_than_the_best_are_not_refined(
    start: Solution, calls: list[Call]
) -> None:
    left, spent = raced([start.makespan_us * ratio for ratio in (1.0, 1.1, 1.4, 1.6)], start)
    assert [entry.name for entry in left] == ["0", "1"]
    assert len(calls) == 3 + 2
    (six, first, _), (three, second, _) = RACE
    assert spent == pytest.approx(2.0 * (3 * first / six + 2 * second / three))


def test_graphs_for_which_the_time_is_too_short_are_not_refined(
    start: Solution, calls: list[Call]
) -> None:
    """The time is enough for the parts of the second round only."""
    (six, first, _), (three, second, _) = RACE
    least_s = REFINEMENT_US_PER_OP * start.problem.num_ops / 1e6
    limits = Limits(1.1 * least_s / (second / three))
    assert first / six * limits.time_limit_s < least_s
    left, spent = raced([start.makespan_us * ratio for ratio in (1.0, 1.1)], start, limits)
    assert [entry.name for entry in left] == ["0", "1"]
    assert len(calls) == 2
    assert spent == pytest.approx(2.0 * 2 * second / three)


def raced(
    steps_us: Sequence[float], start: Solution, limits: Limits | None = None
) -> tuple[list[Entry], float]:
    """Return the entries that are left of schedules of these lengths, and the share of time.

    limits: those of the whole search.
    """
    schedules = [
        replace(start.schedule, end_us=start.schedule.end_us * step_us / start.makespan_us)
        for step_us in steps_us
    ]
    solutions = [replace(start, schedule=schedule) for schedule in schedules]
    entries = [Entry(str(place), each, each) for place, each in enumerate(solutions)]
    half = shares(Limits(50.0, deterministic=True))
    return run_race(entries[::-1], Context(limits or Limits()), half, 2.0)
