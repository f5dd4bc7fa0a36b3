"""The part of `pesto` that decides whether to split ops.

It places the whole ops for a short time, and refines each schedule with split ops for a short time:
that of the warm start, if there is one, and the data-parallel ones. The best of these gets the rest
of the time, which is at least 80 % of the limit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.data.solution import PlanSet, Solution
from pesto_cli.data.split_start import SplitStart
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.sampling import deviation_of_parts
from pesto_cli.evaluation.simulator import Simulator, replay
from pesto_cli.refine import refine
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import DataParallel
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.incumbent import Incumbent
from pesto_cli.strategies.robust import ROBUST_SHARE, refined_robustly
from pesto_cli.strategies.time_shares import shares

# Shares of the time limit: for the placement of whole ops, and for all schedules with split ops.
WHOLE_SHARE, SPLIT_SHARE = 0.1, 0.1
# Estimated time to split an op and to schedule one of its parts, measured on a server from 2020.
# The number of data-parallel schedules that are tried follows from it, so it is the same in each
# run.
SPLIT_US_PER_PART = 100.0


class Placer(Protocol):
    """The part of `Pesto` that places whole ops."""

    @property
    def robust(self) -> bool:
        """Whether the last part of the search minimises the mean makespan over samples."""

    def place(
        self, problem: Problem, context: Context, found: Mapping[str, Schedule] | None = None
    ) -> Solution:
        """Return a solution with whole ops."""


@dataclass(frozen=True, eq=False)
class _Trial:
    """A solution after a short search, and the search that may continue it."""

    solution: Solution
    continued: Callable[[Limits], Solution]


def split_or_whole(placer: Placer, problem: Problem, context: Context) -> Solution:
    """Return the best solution with whole ops or with the batch split.

    Raises:
        BadInputError: the search is robust, and no op time and no delay varies.
    """
    share, bound_us = shares(context.limits), all_plans_bound_us(problem)
    context = replace(context, on_progress=_best_of(context.on_progress, bound_us))
    trials = [_whole(placer, problem, context, share(WHOLE_SHARE))]
    ways, notes = _ways(problem, context)
    for number, way in enumerate(ways, start=1):
        # The result of an earlier search is not lost if this one is stopped early.
        if isinstance(way, _AsBefore) or not context.limits.stop.is_set():
            limits = share(SPLIT_SHARE / len(ways), WHOLE_SHARE + SPLIT_SHARE * number / len(ways))
            try:
                trials.append(_split(placer, problem, context, limits, way))
            except BadInputError as error:
                notes = (*notes, f"{way.name}: {error}")
    best = min(trials, key=lambda trial: _quality(trial.solution))
    found = [trial.solution for trial in trials]
    if not context.limits.stop.is_set():
        found.append(best.continued(share(1 - WHOLE_SHARE - SPLIT_SHARE, 1.0)))
    solution = min(found, key=_quality)
    whole = [each for each in found if not each.is_rewritten]
    return replace(
        solution,
        lower_bound_us=bound_us,
        bound_holds_for=PlanSet.ALL_PLANS,
        whole=min(whole, key=_quality).schedule if whole else None,
        notes=(*solution.notes, *notes),
    )


def _quality(solution: Solution) -> tuple[int, float]:
    return objective(solution.problem, solution.schedule)


def _whole(placer: Placer, problem: Problem, context: Context, limits: Limits) -> _Trial:
    """Place whole ops for a short time, and the parts of those that the constraints split."""
    split = rewritten(problem, problem.chosen) if problem.chosen else None
    whole = replace(problem, parts=None) if split is None else split.problem
    if split is not None:
        deviation = _deviation_of_parts(whole, split.origin, context)
        context = replace(context, warm_start=None, deviation=deviation)

    def asked(solution: Solution) -> Solution:
        if split is None:
            return replace(solution, asked=problem, problem=problem)
        return replace(
            split.solution(problem, solution.schedule),
            notes=solution.notes,
            sampled=solution.sampled,
        )

    first = placer.place(whole, replace(context, limits=limits))

    def continued(rest: Limits) -> Solution:
        found = {"short search": first.schedule}
        return asked(placer.place(whole, replace(context, limits=rest), found))

    return _Trial(asked(first), continued)


class _Way(Protocol):
    """A way to split ops and to schedule them: `DataParallel`, or `_AsBefore`."""

    name: ClassVar[str]

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Return a solution with split ops."""


@dataclass(frozen=True, eq=False)
class _AsBefore:
    """The plan and the placement of the warm start."""

    name: ClassVar[str] = "split warm start"
    start: SplitStart

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Split and replay."""
        split = rewritten(problem, self.start.plan)
        schedule = replay(split.problem, self.start.placement)
        return replace(
            split.solution(problem, schedule), lower_bound_us=all_plans_bound_us(problem)
        )


def _ways(problem: Problem, context: Context) -> tuple[Sequence[_Way], tuple[str, ...]]:
    """Return the schedules with split ops to try, and notes on those that are left out."""
    before = [] if context.split_start is None else [_AsBefore(context.split_start)]
    ways, notes = _data_parallel(problem, context.limits)
    return [*before, *ways], notes


def _data_parallel(
    problem: Problem, limits: Limits
) -> tuple[Sequence[DataParallel], tuple[str, ...]]:
    """Return the data-parallel schedules to try, and notes on those that are left out."""
    if len(accelerators(problem)) < 2:
        return (), ()
    ways, kept, left_out = [*_settings(problem)], list[DataParallel](), 0
    left_us = SPLIT_SHARE * limits.time_limit_s * 1e6
    for way in ways:
        left_us -= SPLIT_US_PER_PART * problem.num_ops * len(way.devices(problem))
        if left_us > 0:
            kept.append(way)
        else:
            left_out += 1
    if left_out:
        note = (
            f"the time limit was too short to try {left_out} of {len(ways)} ways to split the batch"
        )
        return kept, (note,)
    return kept, ()


def _settings(problem: Problem) -> Iterator[DataParallel]:
    plain = DataParallel()
    yield plain
    if len(set(plain.hosts(problem))) > 1:
        yield DataParallel(by_host=True)
    proportional = DataParallel(proportional=True)
    if proportional.devices(problem) != plain.devices(problem):
        yield proportional


def _split(placer: Placer, problem: Problem, context: Context, limits: Limits, way: _Way) -> _Trial:
    """Split ops, and refine the schedule for a short time.

    Raises:
        BadInputError: no input can be split into so many parts.
    """
    share = shares(limits)
    solution = way(problem, context)
    simulator = Simulator(solution.problem)
    first = _refined(simulator, solution, context, share(1.0), way.name)

    def continued(rest: Limits) -> Solution:
        if not placer.robust:
            return _refined(simulator, first, context, rest, way.name)
        share = shares(rest)
        plain = _refined(simulator, first, context, share(1 - ROBUST_SHARE), way.name)
        deviation = _deviation_of_parts(solution.problem, solution.origin, context)
        last = share(ROBUST_SHARE, 1.0)
        schedule, sampled = refined_robustly(simulator, plain.schedule, deviation, last)
        return replace(plain, schedule=schedule, sampled=sampled)

    return _Trial(first, continued)


def _refined(
    simulator: Simulator, solution: Solution, context: Context, limits: Limits, source: str
) -> Solution:
    incumbent = Incumbent(solution.problem, context)
    incumbent.offer(source, solution.schedule)
    incumbent.prove(solution.lower_bound_us)
    incumbent.begin("refinement of parts")
    refine(
        simulator,
        [solution.schedule],
        limits,
        lower_bound_us=solution.lower_bound_us,
        on_incumbent=incumbent.offer,
    )
    return replace(solution, schedule=incumbent.schedule)


def _deviation_of_parts(problem: Problem, origin: IntArray, context: Context) -> FloatArray:
    """Return the deviation of each op's time, `[num_ops, num_devices]`; problem: a split one."""
    if context.deviation is None:
        return np.zeros((problem.num_ops, problem.num_devices))
    return deviation_of_parts(context.deviation, origin)


def _best_of(
    on_progress: Callable[[Progress], None], bound_us: float
) -> Callable[[Progress], None]:
    """Return a callback that reports the best incumbent of all trials, with the common bound."""
    best: list[Progress] = []

    def forwarded(progress: Progress) -> None:
        if not best or _key(progress) < _key(best[0]):
            best[:] = [progress]
        on_progress(replace(best[0], stage=progress.stage, lower_bound_us=bound_us))

    return forwarded


def _key(progress: Progress) -> tuple[int, float]:
    return progress.shortfall_bytes, progress.makespan_us
