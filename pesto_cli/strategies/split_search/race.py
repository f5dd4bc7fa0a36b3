"""The race of schedules with split ops.

All are refined for a short time, and the best of them once more. A refinement gains more on few ops
than on many, so the best schedule before refinement often is not the best after it.

The winner is refined for the rest of the time. Annealing from one start ends in different local
optima: with 4,326 ops, the step times of short refinements with eight seeds differ by 11 %. So the
refinement first begins again at the start of the winner, with other seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError, InfeasibleError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine import STAGES_NEAR_START, justified, refine
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.fewer_hosts import on_hosts_used_first
from pesto_cli.strategies.incumbent import Incumbent
from pesto_cli.strategies.split_search.beside_whole import BesideWhole
from pesto_cli.strategies.split_search.copied import CopiedPlacement
from pesto_cli.strategies.split_search.forms import few_beside_whole
from pesto_cli.strategies.split_search.ways import AsBefore, Way, share_of
from pesto_cli.strategies.time_shares import Share, shares


class Round(NamedTuple):
    """A round of the race.

    most: the largest number of schedules that are left.
    share: that of the time limit, if so many are refined. Schedules of graphs for which their part
        of it is too short are not.
    worst: the largest ratio of a step time to the shortest one. Schedules with a larger ratio are
        left out, because a short refinement rarely gains so much.
    """

    most: int
    share: float
    worst: float


RACE = (Round(6, 0.1, 1.5), Round(3, 0.08, 1.15))
# The least time of a refinement, for each op: a shorter one ends when its graphs are ready.
REFINEMENT_US_PER_OP = 60.0
# The share of the remaining time for refinements that begin again, and how many there are at most.
# A graph with many ops has time for none.
RESTARTS_SHARE, MOST_RESTARTS = 0.3, 10
# The share of the remaining time in which a schedule is refined that splits better whole ops.
BESIDE_SHARE = 0.1
# The share of the remaining time in which the first part of the batch is placed for longer. The
# first part has fewer ops and devices than the whole step, so its search needs less time.
LONGER_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class Entry:
    """A schedule that takes part in the race.

    name: its source, as progress reports show it.
    start: the solution before all refinements. best: the best one so far.
    was_searched: whether the start is the result of a search; it is not used again then.
    way: how ops were split, if they were here.
    """

    name: str
    start: Solution
    best: Solution
    was_searched: bool = False
    way: Way | None = None

    @classmethod
    def of(cls, way: Way, problem: Problem, context: Context) -> Self:
        """Return the solution of a way, justified.

        Raises:
            BadInputError: the step cannot be split so.
        """
        name, start = way(problem, context)
        start = _justified(start)
        return cls(name, start, start, isinstance(way, AsBefore | BesideWhole), way)

    def beside(
        self, whole: Solution, before: Solution, context: Context, limits: Limits
    ) -> tuple[Self, float]:
        """Return the entry, or one that splits some of better whole ops, if its step is shorter.

        The new entry is refined for a short time, then compared. It splits ops in the same way, or
        few ops if this entry did not begin with whole ops. The second result is the share of the
        time limit that all this takes.

        before: the whole ops so far; if the others are not better, nothing is tried.
        """
        if whole.objective >= before.objective:
            return self, 0.0
        way = self.way
        new = replace(way, whole=whole) if isinstance(way, BesideWhole) else few_beside_whole(whole)
        built = share_of(new.us_per_op(whole.asked), whole.asked, limits)
        if built + BESIDE_SHARE >= 1:
            return self, 0.0
        try:
            entry = self.of(new, whole.asked, context)
        except (BadInputError, InfeasibleError):  # no op is worth splitting
            return self, built
        spent = built + BESIDE_SHARE
        entry = entry.refined(context, shares(limits)(BESIDE_SHARE, spent))
        return min(self, entry, key=lambda each: each.best.objective), spent

    def placed_longer(self, context: Context, share: Share, spent: float) -> tuple[Self, float]:
        """Return the entry, or one for which the first part is placed for longer, if it is shorter.

        Only copies of a placement have a first part. The second result is the share of the time
        that is spent then; spent: before. If too little is left, nothing is tried.
        """
        if not isinstance(self.way, CopiedPlacement) or spent + LONGER_SHARE >= 1:
            return self, spent
        spent += LONGER_SHARE
        start = _justified(
            self.way.search(self.best.asked, context, share(LONGER_SHARE, spent), self.best)
        )
        entry = replace(self, start=start, best=start, was_searched=True)
        return min(self, entry, key=lambda each: each.best.objective), spent

    def refined(self, context: Context, limits: Limits) -> Self:
        """Return the entry after a refinement of its best solution."""
        return replace(self, best=_refined(self.best, context, limits, self.name))

    def refined_with_restarts(self, context: Context, limits: Limits) -> Self:
        """Return the entry after refinements of its start with other seeds, then of the best."""
        restart_s = REFINEMENT_US_PER_OP * max(1, self.start.problem.num_ops) / 1e6
        number = int(min(MOST_RESTARTS, RESTARTS_SHARE * limits.time_limit_s / restart_s))
        if self.was_searched or number < 2:
            return self.refined(context, limits)
        share, found = shares(limits), [self.best]
        for restart in range(1, number + 1):
            part = share(RESTARTS_SHARE / number, RESTARTS_SHARE * restart / number)
            other = replace(part, seed=limits.seed + restart)
            found.append(_refined(self.start, context, other, self.name))
        best = min(found, key=lambda solution: solution.objective)
        return replace(self, best=best).refined(context, share(1 - RESTARTS_SHARE, 1.0))


def run_race(
    entries: Sequence[Entry], context: Context, share: Share, scale: float
) -> tuple[list[Entry], float]:
    """Return the entries that are left after all rounds, and the share of time that they took.

    Args:
        entries: the schedules.
        context: context of the search.
        share: of the time that is left.
        scale: how many times as long the whole time limit is.
    """
    left, spent = list(entries), 0.0
    for each in RACE:
        best = best_of(left, each.most)
        short, step_us = best[0].best.objective if best else (0, 0.0)
        limit, left = (short, each.worst * step_us), []
        part = each.share / each.most
        for entry in best:
            if entry.best.objective <= limit:
                if part >= share_of(REFINEMENT_US_PER_OP, entry.start.problem, context.limits):
                    spent += scale * part
                    entry = entry.refined(context, share(scale * part, spent))
                left.append(entry)
    return left, spent


def best_of(entries: Sequence[Entry], number: int) -> list[Entry]:
    """Return the entries with the best solutions.

    Two ways may give the same schedule, also with exchanged devices: then the first one counts.
    """
    distinct = {
        (entry.best.objective, entry.best.problem.num_ops): entry for entry in reversed(entries)
    }
    return sorted(distinct.values(), key=lambda entry: entry.best.objective)[:number]


def _justified(solution: Solution) -> Solution:
    return replace(solution, schedule=justified(Simulator(solution.problem), solution.schedule))


def _refined(solution: Solution, context: Context, limits: Limits, source: str) -> Solution:
    simulator, incumbent = Simulator(solution.problem), Incumbent(solution.problem, context)
    incumbent.begin("refinement of parts")
    incumbent.offer(source, solution.schedule)
    incumbent.prove(solution.lower_bound_us)
    for on_hosts, start, part in on_hosts_used_first(simulator, incumbent, limits):
        refine(
            on_hosts,
            [start],
            part,
            lower_bound_us=solution.lower_bound_us,
            stages=STAGES_NEAR_START,
            on_incumbent=incumbent.offer,
        )
    return replace(solution, schedule=incumbent.schedule)
