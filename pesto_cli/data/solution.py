"""Solution: a strategy's schedule, of the requested graph or of a rewritten one."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.plan import Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective


class PlanSet(StrEnum):
    """Sets of schedules for which a lower bound may hold; each set is a subset of the next."""

    THIS_GRAPH = "this graph"  # placements and orders of the graph that was solved
    ASKED_GRAPH = "the graph as it is"  # placements and orders of the requested graph
    ALL_PLANS = "all plans"  # also those of every graph that the strategy was allowed to make


@dataclass(frozen=True)
class SampledMeans:
    """Mean makespans with random op times and delays, in us, of the result of a robust search.

    num_samples: number of samples.
    mean_us: mean makespan of the solution's schedule.
    plain_makespan_us, plain_mean_us: makespan with the times of the problem, and mean makespan, of
        the schedule that the search without samples found.
    """

    num_samples: int
    mean_us: float
    plain_makespan_us: float
    plain_mean_us: float


@dataclass(frozen=True, eq=False)
class Solution:
    """A schedule, with the problem that it solves and a lower bound.

    asked: the problem that the strategy was given.
    problem: the problem that was solved: `asked`, or a problem with a rewritten graph.
    origin: `[problem.num_ops]`: for each op, the op of `asked` of which it is a copy or a part; -1
        for an op that the rewriting has added, such as a sum of parts.
    schedule: the schedule of `problem`.
    lower_bound_us: no plan of `bound_holds_for` is shorter; 0 if nothing is proved.
    notes: parts of the strategy that were left out, such as an ILP that is too large; a sentence
        each.
    sampled: the mean makespans with which a robust search ended; None after another search.
    plan: how the ops of `asked` were split; None if the graph was not rewritten by a plan.
    part: `[problem.num_ops]`: index of the part of `origin` that each op is, or -1; None without a
        plan.
    serves: `[problem.num_ops]`: the origin, or for an op that a plan has added the op of `asked`
        whose output it converts; None without a plan.
    whole: the best schedule of `asked` that the strategy found without splitting ops, if any.
    """

    asked: Problem
    problem: Problem
    origin: IntArray
    schedule: Schedule
    lower_bound_us: float = 0.0
    bound_holds_for: PlanSet = PlanSet.ASKED_GRAPH
    notes: tuple[str, ...] = ()
    sampled: SampledMeans | None = None
    plan: Plan | None = None
    part: IntArray | None = None
    serves: IntArray | None = None
    whole: Schedule | None = None

    @classmethod
    def of(
        cls,
        problem: Problem,
        schedule: Schedule,
        lower_bound_us: float = 0.0,
        notes: tuple[str, ...] = (),
    ) -> Self:
        """Return a schedule of the requested graph, with a bound on the schedules of that graph."""
        origin = np.arange(problem.num_ops)
        return cls(problem, problem, origin, schedule, lower_bound_us, PlanSet.ASKED_GRAPH, notes)

    @property
    def is_rewritten(self) -> bool:
        """Whether the solved graph is not the requested graph."""
        return self.problem.graph is not self.asked.graph

    @property
    def makespan_us(self) -> float:
        """The predicted step time."""
        return self.schedule.makespan_us

    @property
    def objective(self) -> tuple[int, float]:
        """Sort key: the bytes that do not fit into memory, then the makespan in us."""
        return objective(self.problem, self.schedule)

    def first_parts(self) -> tuple[IntArray, FloatArray]:
        """Return the device and the start in us of each op of the requested graph, `[num_ops]`.

        Of several parts of an op, the first counts. The device is -1 for an op that the solved
        graph lacks.
        """
        device, start_us = np.full(self.asked.num_ops, -1), np.zeros(self.asked.num_ops)
        found, first = np.unique(self.origin, return_index=True)
        found, first = found[found >= 0], first[found >= 0]
        device[found], start_us[found] = self.schedule.device[first], self.schedule.start_us[first]
        return device, start_us
