"""`fastt`: FastT's device placement and operation sequencing (Yi et al., Middleware '20).

Algorithm 1, DPOS, takes ops by upward rank with the largest costs. Ops on the critical path go to
the device that runs them fastest on average, until its memory is full; the next ops go to another
device. Each other op goes to the device with the earliest finish time, with insertion into idle
slots. FastT's cost model, which learns transfer times, is in `congestion_rounds`. Differences:

- no op is split, and the model is not replicated: the graph does not change. `os_dpos` does both;
- the paper's devices are GPUs. Here critical-path devices are chosen from the accelerators, and ops
  that accelerators cannot run go to the device with the earliest finish time;
- two orders are simulated, by DPOS's own starts and by upward rank of the placement;
- colocation groups and variables are treated as in `insertion_scheduling`;
- the paper does not define the memory of an op: see `congestion_rounds`.
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
    IdealSchedule,
    insertion_schedule,
    largest,
    upward_rank,
)


@dataclass(frozen=True)
class FastT:
    """FastT's device placement and operation sequencing (DPOS)."""

    name: ClassVar[str] = "fastt"

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Return the best of several rounds, each placed without and simulated with congestion."""
        return Solution.of(problem, best_of_rounds(problem, context, dpos_schedule).schedule)


def dpos_schedule(problem: Problem, memory_bytes: FloatArray) -> IdealSchedule:
    """Return DPOS's own schedule, without congestion.

    Args:
        problem: the problem.
        memory_bytes: memory that each group uses throughout the step, `[num_groups]`.
    """
    edges = Edges.of(problem)
    rank = upward_rank(problem, edges, largest)
    decided = path_devices(problem, critical_path(problem, rank), memory_bytes)
    return insertion_schedule(problem, edges, rank, decided, memory_bytes)


def critical_path(problem: Problem, rank: FloatArray) -> IntArray:
    """Return the ops of the critical path, in order.

    The path begins with the entry op of largest rank, and continues with the successor of largest
    rank.
    """
    successors = problem.graph.successors
    entries = np.flatnonzero(problem.graph.predecessors.degree == 0)
    path, after = [], entries
    while len(after):
        path.append(int(after[rank[after].argmax()]))
        after = successors[path[-1]]
    return np.array(path, dtype=np.int64)


def path_devices(problem: Problem, path: IntArray, memory_bytes: FloatArray) -> IntArray:
    """Return the critical-path device of each group on the path, -1 for others, `[num_groups]`.

    Each device is tested with as many of the remaining path ops as fit in its memory. The device on
    which its ops have the smallest average time gets them. This is repeated for the remaining ops.
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
    """Return the ops of `left` that a device may run, in order, until its memory is full."""
    able = left[problem.allowed[left, here]]
    group = problem.graph.colocation_group[able]
    _, first = np.unique(group, return_index=True)
    needed = np.zeros(len(able))
    needed[first] = memory_bytes[group[first]]
    taken: IntArray = able[np.cumsum(needed) <= room[here]]
    return taken
