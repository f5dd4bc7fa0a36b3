"""Results of strategies, and the progress of a search."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pesto_cli.data.machine import short_list
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution

# An optimal makespan and its bound may differ by rounding: sums of doubles depend on their order,
# CP-SAT has whole units of time, HiGHS stops at a gap, and CBC prints eight digits. These errors
# together are below this share of the makespan.
OPTIMALITY_TOLERANCE = 1e-6


class SolveStatus(StrEnum):
    """How a search ended. A search that the time limit ended has no status `OPTIMAL`."""

    OPTIMAL = "optimal"  # the schedule is proved optimal, within `OPTIMALITY_TOLERANCE`
    FEASIBLE = "feasible"  # there is a schedule; it is not proved optimal
    INTERRUPTED = "interrupted"  # there is a schedule; the user stopped the search
    OUT_OF_MEMORY = "out of memory"  # the schedule exceeds a device's memory
    INFEASIBLE = "infeasible"  # it is proved that no schedule exists
    UNKNOWN = "unknown"  # no schedule was found within the time limit


@dataclass(frozen=True)
class Held:
    """Data in a device's memory: the variables of an op, one of its outputs, or a received copy.

    op: name of the op. since_us: start of the op, or of the transfer of the copy; 0 for variables.
    """

    op: str
    what: Literal["variable", "output", "copy"]
    num_bytes: int
    since_us: float


@dataclass(frozen=True)
class MemoryPeak:
    """The memory of a device at its peak.

    capacity_bytes: memory that may be used.
    at_us: the first instant of the peak.
    held: all data in the memory at that instant, largest first.
    """

    device: str
    capacity_bytes: int
    at_us: float
    held: tuple[Held, ...]

    @property
    def peak_bytes(self) -> int:
        """Sum of all data held."""
        return sum(each.num_bytes for each in self.held)

    @property
    def resident_bytes(self) -> int:
        """Bytes of variables in the peak; they are held throughout the step."""
        return sum(each.num_bytes for each in self.held if each.what == "variable")

    @property
    def shortfall_bytes(self) -> int:
        """By how much the peak exceeds the capacity, at least 0."""
        return max(0, self.peak_bytes - self.capacity_bytes)


@dataclass(frozen=True, eq=False)
class Result:
    """A strategy's solution, its status and its bound.

    Makespan and bound are for the full graph: `makespan_us` is the makespan in the simulator, and
    `lower_bound_us` holds for every plan that the strategy was allowed. They are never the
    objective and bound of a coarse model.

    memory_peaks: one for every device whose memory the schedule exceeds.
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
        """The problem that was solved: with the requested graph, or with a rewritten one."""
        return self.solution.problem

    @property
    def schedule(self) -> Schedule:
        """The schedule of `problem`."""
        return self.solution.schedule

    @property
    def lower_bound_us(self) -> float:
        """The lower bound in us; see `Solution`."""
        return self.solution.lower_bound_us

    @property
    def makespan_us(self) -> float:
        """The predicted step time."""
        return self.schedule.makespan_us

    @property
    def gap(self) -> float:
        """The gap to the lower bound, as a share of the makespan."""
        return gap(self.makespan_us, self.lower_bound_us)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results of several strategies on one problem."""

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
    """The state of a search at one moment.

    stage: the stage that runs now. source: the stage that found the incumbent.
    shortfall_bytes: by how much the incumbent exceeds the memory, summed over devices.
    """

    stage: str
    source: str
    incumbent: Schedule
    shortfall_bytes: int
    lower_bound_us: float

    @property
    def makespan_us(self) -> float:
        """The makespan of the incumbent."""
        return self.incumbent.makespan_us

    @property
    def gap(self) -> float:
        """The gap to the lower bound, as a share of the makespan."""
        return gap(self.makespan_us, self.lower_bound_us)


@dataclass(frozen=True)
class RewardPoint:
    """A point of the reward curve of a policy that learns: an iteration of its training.

    num_placements: number of placements sampled until then. graph: hash of the profile.
    mean_us: mean step time of the iteration's placements; a placement that does not fit in memory
        counts several times.
    best_us: the shortest step time of this profile so far.
    """

    num_placements: int
    graph: str
    mean_us: float
    best_us: float


def gap(makespan_us: float, lower_bound_us: float) -> float:
    """Return `1 - lower bound / makespan`, at least 0."""
    return max(0.0, 1 - lower_bound_us / makespan_us) if makespan_us > 0 else 0.0


def optimal_up_to_us(lower_bound_us: float) -> float:
    """Return the longest makespan that a lower bound proves optimal."""
    return lower_bound_us * (1 + OPTIMALITY_TOLERANCE)
