"""The environment of a policy: placements of super-ops in, their step times by the simulator out.

Spotlight runs ten steps of each placement on a machine (Section 5.1, "Distributed training"). Here
the simulator replaces the machine, with the order by upward rank. The paper does not treat
placements that do not fit in memory. Here their step time counts `OUT_OF_MEMORY_FACTOR` times, the
factor of HeteroG (Yi et al., CoNEXT '20, Section 4.1.3).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, shortfall_bytes
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.learned.features import features
from pesto_cli.learned.groups import SuperOps, by_scope
from pesto_cli.strategies.order import highest_rank_first

OUT_OF_MEMORY_FACTOR = 10.0


@dataclass(frozen=True, eq=False)
class Environment:
    """A problem with its super-ops. features: `[num_super_ops, num_features]`."""

    simulator: Simulator
    super_ops: SuperOps
    features: FloatArray

    @property
    def num_devices(self) -> int:
        """The number of devices of the machine."""
        return self.simulator.problem.num_devices

    @classmethod
    def of(cls, problem: Problem) -> "Environment":
        """Group the ops of a problem by their scopes."""
        super_ops = by_scope(problem)
        return cls(Simulator(problem), super_ops, features(super_ops))

    def schedules(self, chosen: IntArray, pool: ThreadPoolExecutor) -> Sequence[Schedule]:
        """Return the schedule of each placement.

        chosen: the device of each super-op in each placement, `[num_placements, num_super_ops]`.
        """
        return list(pool.map(self.schedule, chosen))

    def schedule(self, chosen: IntArray) -> Schedule:
        """Return the schedule of one placement, `[num_super_ops]`."""
        return highest_rank_first(self.simulator, self.super_ops.devices(chosen))

    def cost_us(self, schedule: Schedule) -> float:
        """Return the step time in us that a policy minimises."""
        fits = not shortfall_bytes(self.simulator.problem, schedule).any()
        return schedule.makespan_us * (1.0 if fits else OUT_OF_MEMORY_FACTOR)
