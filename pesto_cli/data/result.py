"""What a strategy answers, and what it tells on the way."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pesto_cli.data.machine import short_list
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution

# Sums of doubles in another order differ by rounding, and solvers round more: CP-SAT's whole units
# of time, HiGHS's gap and CBC's eight digits come to less than this share of the makespan.
OPTIMALITY_TOLERANCE = 1e-6


class SolveStatus(StrEnum):
    """How a search ended. A time limit is never `OPTIMAL`."""

    OPTIMAL = "optimal"  # proved, within `OPTIMALITY_TOLERANCE`
    FEASIBLE = "feasible"  # a schedule, nothing proved
    INTERRUPTED = "interrupted"  # a schedule, cut short by the user
    OUT_OF_MEMORY = "out of memory"  # a schedule that exceeds a device's memory
    INFEASIBLE = "infeasible"  # proved that none exists
    UNKNOWN = "unknown"  # the time limit passed without a schedule


@dataclass(frozen=True)
class Held:
    """Something that lies in a device's memory: an op's variables, its output, or a copy of that.

    since_us: start of the op, or of the transfer that brings the copy; 0 for variables.
    """

    op: str
    what: Literal["variable", "output", "copy"]
    num_bytes: int
    since_us: float


@dataclass(frozen=True)
class MemoryPeak:
    """What a device holds when it holds most, and how much of its memory may be used.

    at_us: the first such instant. held: everything at that instant, largest first.
    """

    device: str
    capacity_bytes: int
    at_us: float
    held: tuple[Held, ...]

    @property
    def peak_bytes(self) -> int:
        """Sum of everything held."""
        return sum(each.num_bytes for each in self.held)

    @property
    def resident_bytes(self) -> int:
        """What of the peak is variables, which stay throughout."""
        return sum(each.num_bytes for each in self.held if each.what == "variable")

    @property
    def shortfall_bytes(self) -> int:
        """By how much the peak exceeds the capacity, at least 0."""
        return max(0, self.peak_bytes - self.capacity_bytes)


@dataclass(frozen=True, eq=False)
class Result:
    """A strategy's solution, with what is known of its quality.

    makespan_us and lower_bound_us are of the full graph: the first by the simulator, the second
    holds for every plan that the strategy was allowed. A coarse model's own objective and bound
    never stand here.
    memory_peaks: of every device whose memory the schedule exceeds.
    """

    strategy: str
    status: SolveStatus
    solution: Solution
    runtime_s: float
    memory_peaks: tuple[MemoryPeak, ...] = ()

    def __repr__(self) -> str:
        size = f"{self.problem.num_ops:,} ops on {short_list(self.problem.machine.index_of)}"
        times = f"makespan {self.makespan_us:,.1f} us, lower bound {self.lower_bound_us:,.1f} us"
        return f"<Result: {self.strategy}, {self.status}, {size}, {times}>"

    @property
    def problem(self) -> Problem:
        """What was solved: of the graph that was asked about, or of a rewritten one."""
        return self.solution.problem

    @property
    def schedule(self) -> Schedule:
        """Of `problem`."""
        return self.solution.schedule

    @property
    def lower_bound_us(self) -> float:
        """See `Solution`."""
        return self.solution.lower_bound_us

    @property
    def makespan_us(self) -> float:
        """Predicted step time."""
        return self.schedule.makespan_us

    @property
    def gap(self) -> float:
        """How far the optimum can be, as a share of the makespan."""
        return gap(self.makespan_us, self.lower_bound_us)


@dataclass(frozen=True, eq=False)
class Comparison:
    """What several strategies answer to one problem."""

    problem: Problem
    results: tuple[Result, ...]

    def __repr__(self) -> str:
        problem = self.problem
        times = [f"{each.strategy} {each.makespan_us:,.1f} us" for each in self.results]
        size = f"{problem.num_ops:,} ops on {short_list(problem.machine.index_of)}"
        return f"<Comparison: {size}: {', '.join(times)}>"

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Result:
        return self.results[index]


@dataclass(frozen=True, eq=False)
class Progress:
    """Where a search stands.

    stage: what runs now. source: what found the incumbent.
    shortfall_bytes: by how much the incumbent exceeds the memory, over all devices.
    """

    stage: str
    source: str
    incumbent: Schedule
    shortfall_bytes: int
    lower_bound_us: float

    @property
    def makespan_us(self) -> float:
        """The incumbent's."""
        return self.incumbent.makespan_us

    @property
    def gap(self) -> float:
        """How far the optimum can be, as a share of the makespan."""
        return gap(self.makespan_us, self.lower_bound_us)


def gap(makespan_us: float, lower_bound_us: float) -> float:
    """`1 - lower bound / makespan`, at least 0."""
    return max(0.0, 1 - lower_bound_us / makespan_us) if makespan_us > 0 else 0.0


def optimal_up_to_us(lower_bound_us: float) -> float:
    """The longest makespan that a lower bound proves optimal."""
    return lower_bound_us * (1 + OPTIMALITY_TOLERANCE)
