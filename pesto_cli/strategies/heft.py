"""`heft`: heterogeneous earliest finish time (Topcuoglu, Hariri and Wu, IEEE TPDS 13(3), 2002).

Ops are taken by upward rank with mean costs. Each goes to the device with the earliest finish time,
with insertion into idle slots (Section 5.1). The paper's model has no queues on links, memory,
colocation or affinity. These are added:

- HEFT assumes that transfers never wait for each other. So transfer times are fitted to those in
  the simulator, with queues, and ops are placed again: see `congestion_rounds`, a method of FastT.
  The first round is HEFT as published;
- two orders are simulated, by HEFT's own starts and by upward rank of the placement;
- colocation groups and variables are treated as in `insertion_scheduling`;
- only devices that may run an op are considered, also in means;
- a device without enough memory for an op is not considered: see `congestion_rounds`.
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
    IdealSchedule,
    insertion_schedule,
    mean,
    upward_rank,
)


@dataclass(frozen=True)
class Heft:
    """Heterogeneous earliest finish time."""

    name: ClassVar[str] = "heft"

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Return the best of several rounds, each placed without and simulated with congestion."""
        return Solution.of(problem, best_of_rounds(problem, context, heft_schedule).schedule)


def heft_schedule(problem: Problem, memory_bytes: FloatArray) -> IdealSchedule:
    """Return HEFT's own schedule, without congestion.

    Args:
        problem: the problem.
        memory_bytes: memory that each group uses throughout the step, `[num_groups]`.
    """
    edges = Edges.of(problem)
    undecided = np.full(problem.graph.num_groups, -1, dtype=np.int64)
    rank = upward_rank(problem, edges, mean)
    return insertion_schedule(problem, edges, rank, undecided, memory_bytes)
