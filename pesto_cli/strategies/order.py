"""From a device for every op to a schedule: the order in which devices run their ops."""

from pesto_cli.graph import IntArray
from pesto_cli.schedule import Schedule
from pesto_cli.simulate import Simulator


def ordered(simulator: Simulator, device: IntArray) -> Schedule:
    """The better of two list schedules: by upward rank with and without the transfers.

    Args:
        simulator: of the problem.
        device: `[num_ops]`, a device that may run each op.
    """
    with_transfers = simulator.list_schedule(device, simulator.upward_rank(device))
    without = simulator.list_schedule(device, simulator.upward_rank())
    return min(with_transfers, without, key=lambda schedule: schedule.makespan_us)
