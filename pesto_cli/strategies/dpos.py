"""`fastt`: FastT's device placement and operation sequencing (Yi et al., Middleware '20).

Algorithm 1, DPOS: ops by upward rank with the largest costs; those on the critical path to the
device that runs them fastest on average, as many as its memory takes, the next ones to another; all
others to the device where they end earliest, into idle slots if they fit. Around it FastT's cost
model, which learns what transfers take: see `rounds`. Departures:

- no op is split (Algorithm 2), and the model is not replicated first: the graph stays what it is;
- the paper's devices are GPUs: critical-path devices are chosen of the accelerators, and what these
  cannot run goes where it ends earliest;
- two orders are simulated, by DPOS's own starts and by upward rank of the placement;
- colocation, and what it means for variables: see `insertion`;
- the paper does not say what an op's memory is: see `rounds`.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.congestion_rounds import best_of_rounds
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.insertion_scheduling import (
    Edges,
    Own,
    insertion_schedule,
    largest,
    upward_rank,
)


@dataclass(frozen=True)
class FastT:
    """FastT's device placement and operation sequencing (DPOS)."""

    name: ClassVar[str] = "fastt"

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Place without congestion, judge with it, and again."""
        return Solution.of(problem, best_of_rounds(problem, context, dpos_schedule))


def dpos_schedule(problem: Problem, memory_bytes: FloatArray) -> Own:
    """DPOS's own schedule, without congestion.

    Args:
        problem: what to place.
        memory_bytes: `[num_groups]`, memory that a group takes for good.
    """
    edges = Edges.of(problem)
    rank = upward_rank(problem, edges, largest)
    decided = path_devices(problem, critical_path(problem, rank), memory_bytes)
    return insertion_schedule(problem, edges, rank, decided, memory_bytes)


def critical_path(problem: Problem, rank: FloatArray) -> IntArray:
    """From the entry op of largest rank on, each time the successor of largest rank."""
    successors = problem.graph.successors
    entries = np.flatnonzero(problem.graph.predecessors.degree == 0)
    path, after = [], entries
    while len(after):
        path.append(int(after[rank[after].argmax()]))
        after = successors[path[-1]]
    return np.array(path, dtype=np.int64)


def path_devices(problem: Problem, path: IntArray, memory_bytes: FloatArray) -> IntArray:
    """`[num_groups]`: the critical-path device of the groups on the path, -1 for all others.

    Of all devices, the one where as many of the remaining ops as its memory takes have the smallest
    average time; and again for those that remain.
    """
    decided = np.full(problem.graph.num_groups, -1, dtype=np.int64)
    room = problem.capacity_bytes.copy()
    left = path
    while True:
        taken = {
            here: _taken(problem, left, here, memory_bytes, room) for here in accelerators(problem)
        }
        taken = {here: ops for here, ops in taken.items() if len(ops)}
        if not taken:
            return decided
        best = min(taken, key=lambda here: float(problem.duration_us[taken[here], here].mean()))
        groups = np.unique(problem.graph.colocation_group[taken[best]])
        decided[groups] = best
        room[best] -= memory_bytes[groups].sum()
        left = left[decided[problem.graph.colocation_group[left]] < 0]


def _taken(
    problem: Problem, left: IntArray, here: int, memory_bytes: FloatArray, room: FloatArray
) -> IntArray:
    """Of these ops in turn, as many as a device may run and has room for."""
    able = left[problem.allowed[left, here]]
    group = problem.graph.colocation_group[able]
    _, first = np.unique(group, return_index=True)
    needed = np.zeros(len(able))
    needed[first] = memory_bytes[group[first]]
    taken: IntArray = able[np.cumsum(needed) <= room[here]]
    return taken
