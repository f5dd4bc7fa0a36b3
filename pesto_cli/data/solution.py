"""What a strategy answers: a schedule, of the graph that was asked about or of another one."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from pesto_cli.data.graph import IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule


class PlanSet(StrEnum):
    """Sets of plans that a lower bound may hold for, each within the next.

    A plan is a graph that computes what the graph asked about computes, with a placement and an
    order of its ops.
    """

    THIS_GRAPH = "this graph"  # placements and orders of the graph that was solved
    ASKED_GRAPH = "the graph as it is"  # placements and orders of the graph that was asked about
    ALL_PLANS = "all plans"  # also of every other graph that the strategy was allowed to make


@dataclass(frozen=True, eq=False)
class Solution:
    """A schedule, with the problem that it solves and a lower bound.

    asked: the problem that the strategy was given.
    problem: what was solved: the same, or a problem with a rewritten graph.
    origin: `[problem.num_ops]`: the op that was asked about of which each op is a copy or a part;
        -1 for an op that the rewriting has added, such as a sum of parts.
    schedule: of `problem`.
    lower_bound_us: no plan of `bound_holds_for` is shorter; 0 if nothing is proved.
    notes: what of the strategy was left out, such as an ILP that is too large; a sentence each.
    """

    asked: Problem
    problem: Problem
    origin: IntArray
    schedule: Schedule
    lower_bound_us: float = 0.0
    bound_holds_for: PlanSet = PlanSet.ASKED_GRAPH
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        problem: Problem,
        schedule: Schedule,
        lower_bound_us: float = 0.0,
        notes: tuple[str, ...] = (),
    ) -> Self:
        """Return a schedule of the graph as it was asked about, with a bound on its schedules."""
        origin = np.arange(problem.num_ops)
        return cls(problem, problem, origin, schedule, lower_bound_us, PlanSet.ASKED_GRAPH, notes)

    @property
    def is_rewritten(self) -> bool:
        """Whether the graph is another than the one that was asked about."""
        return self.problem.graph is not self.asked.graph

    @property
    def makespan_us(self) -> float:
        """Predicted step time."""
        return self.schedule.makespan_us
