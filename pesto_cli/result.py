"""What a strategy answers."""

from dataclasses import dataclass
from enum import StrEnum

from pesto_cli.schedule import Schedule


class SolveStatus(StrEnum):
    """How a search ended. A time limit is never `OPTIMAL`."""

    OPTIMAL = "optimal"  # proved
    FEASIBLE = "feasible"  # a schedule, nothing proved
    INTERRUPTED = "interrupted"  # a schedule, cut short by the user
    OUT_OF_MEMORY = "out of memory"  # a schedule that exceeds a device's memory
    INFEASIBLE = "infeasible"  # proved that none exists
    UNKNOWN = "unknown"  # the time limit passed without a schedule


@dataclass(frozen=True, eq=False)
class Result:
    """A strategy's schedule of the full graph, with what is known of its quality.

    makespan_us and lower_bound_us are of the full graph: the first by the simulator, the second by
    `bounds`. A coarse model's own objective and bound never stand here.
    """

    strategy: str
    status: SolveStatus
    schedule: Schedule
    lower_bound_us: float
    runtime_s: float

    @property
    def makespan_us(self) -> float:
        """Predicted step time."""
        return self.schedule.makespan_us

    @property
    def gap(self) -> float:
        """How far the optimum can be, as a share of the makespan: `1 - lower_bound / makespan`."""
        if self.makespan_us <= 0:
            return 0.0
        return max(0.0, 1 - self.lower_bound_us / self.makespan_us)
