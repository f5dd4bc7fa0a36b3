"""Placements and schedules."""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem

# As a share of the makespan; the rounding error of a sum of a million terms is smaller.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Placement:
    """A device for every op, and the op's position in the execution order of that device.

    device: `[num_ops]`, device index.
    rank: `[num_ops]`, position from 0 on each device.
    """

    device: IntArray
    rank: IntArray


@dataclass(frozen=True, eq=False)
class Transfers:
    """Every transfer of a schedule, as columns of length `num_transfers`.

    tensor: tensor index. dst: device index; the source is the device of the producer.
    start_us, end_us: the transfer occupies its link from start to end.
    """

    tensor: IntArray
    dst: IntArray
    start_us: FloatArray
    end_us: FloatArray

    def __len__(self) -> int:
        return len(self.tensor)


@dataclass(frozen=True, eq=False)
class Schedule:
    """The device, start and end of every op and every transfer.

    device, rank: as in `Placement`. start_us, end_us: `[num_ops]`.
    peak_bytes: `[num_devices]`, the largest number of bytes held at one time.
    """

    device: IntArray
    rank: IntArray
    start_us: FloatArray
    end_us: FloatArray
    transfers: Transfers
    peak_bytes: IntArray

    @property
    def makespan_us(self) -> float:
        """The end of the last op, which is the predicted step time."""
        return float(self.end_us.max(initial=0.0))

    @property
    def placement(self) -> Placement:
        """The devices and ranks of the schedule."""
        return Placement(self.device, self.rank)


def shortfall_bytes(problem: Problem, schedule: Schedule) -> IntArray:
    """Return by how much each peak exceeds the memory that may be used, `[num_devices]`, >= 0."""
    missing = np.ceil(schedule.peak_bytes - problem.capacity_bytes)
    return np.maximum(missing, 0).astype(np.int64)


def sent_bytes(problem: Problem, schedule: Schedule) -> IntArray:
    """Return the bytes that transfers send from device i to j, `[num_devices, num_devices]`."""
    graph, transfers = problem.graph, schedule.transfers
    sent = np.zeros((problem.num_devices, problem.num_devices), dtype=np.int64)
    src = schedule.device[graph.tensor_producer[transfers.tensor]]
    np.add.at(sent, (src, transfers.dst), graph.tensor_bytes[transfers.tensor])
    return sent


def transfer_channels(problem: Problem, schedule: Schedule) -> IntArray:
    """Return the channel in which each transfer queues, `[num_transfers]`."""
    transfers = schedule.transfers
    src = schedule.device[problem.graph.tensor_producer[transfers.tensor]]
    channels: IntArray = problem.machine.channel[src, transfers.dst]
    return channels


def rounding_us(schedule: Schedule) -> float:
    """Return the tolerance for two sums of the same doubles in different orders, in us."""
    return ROUNDING * schedule.makespan_us


def objective(problem: Problem, schedule: Schedule) -> tuple[int, float]:
    """Return a sort key, lower is better: the shortfall of memory in bytes, then the makespan."""
    return int(shortfall_bytes(problem, schedule).sum()), schedule.makespan_us
