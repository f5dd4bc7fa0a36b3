"""`heft`: heterogeneous earliest finish time (Topcuoglu, Hariri and Wu, IEEE TPDS 13(3), 2002).

Ops by upward rank with mean costs, each to the device where it ends earliest, into idle slots
between others if it fits there (Section 5.1). The paper's model knows neither queues on links nor
memory, colocation or affinity. What is added:

- as transfers do not wait for each other while ops are placed, what they took in the simulator, in
  which they do, is fitted, and ops are placed again: see `rounds`, which has this from FastT. The
  first round is HEFT as published;
- two orders are simulated, by HEFT's own starts and by upward rank of the placement;
- colocation, and what it means for variables: see `insertion`;
- only devices that may run an op count, in means too;
- a device without room for an op's memory is left out: see `rounds`.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.congestion_rounds import best_of_rounds
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.insertion_scheduling import (
    Edges,
    Own,
    insertion_schedule,
    mean,
    upward_rank,
)


@dataclass(frozen=True)
class Heft:
    """Heterogeneous earliest finish time."""

    name: ClassVar[str] = "heft"

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Place without congestion, judge with it, and again."""
        return Solution.of(problem, best_of_rounds(problem, context, heft_schedule))


def heft_schedule(problem: Problem, memory_bytes: FloatArray) -> Own:
    """HEFT's own schedule, without congestion.

    Args:
        problem: what to place.
        memory_bytes: `[num_groups]`, memory that a group takes for good.
    """
    edges = Edges.of(problem)
    undecided = np.full(problem.graph.num_groups, -1, dtype=np.int64)
    rank = upward_rank(problem, edges, mean)
    return insertion_schedule(problem, edges, rank, undecided, memory_bytes)
