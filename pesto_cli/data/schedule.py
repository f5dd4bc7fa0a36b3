"""Placements and schedules."""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem

# As a share of the makespan; a sum of a million terms is off by less.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Placement:
    """A device for every op, and its place in that device's execution order.

    device: `[num_ops]`, device index.
    rank: `[num_ops]`, counts from 0 on each device.
    """

    device: IntArray
    rank: IntArray


@dataclass(frozen=True, eq=False)
class Transfers:
    """Every transfer of a schedule, as columns of length `num_transfers`.

    tensor: tensor index. dst: device index; the source is the device of the producer.
    start_us, end_us: when the transfer holds its link.
    """

    tensor: IntArray
    dst: IntArray
    start_us: FloatArray
    end_us: FloatArray

    def __len__(self) -> int:
        return len(self.tensor)


@dataclass(frozen=True, eq=False)
class Schedule:
    """Where and when every op and every transfer runs.

    device, rank: as in `Placement`. start_us, end_us: `[num_ops]`.
    peak_bytes: `[num_devices]`, largest sum of what is held at one time.
    """

    device: IntArray
    rank: IntArray
    start_us: FloatArray
    end_us: FloatArray
    transfers: Transfers
    peak_bytes: IntArray

    @property
    def makespan_us(self) -> float:
        """End of the last op: the predicted step time."""
        return float(self.end_us.max(initial=0.0))

    @property
    def placement(self) -> Placement:
        """What of the schedule can be enforced."""
        return Placement(self.device, self.rank)


def shortfall_bytes(problem: Problem, schedule: Schedule) -> IntArray:
    """`[num_devices]`: by how much the peak exceeds the memory that may be used, at least 0."""
    missing = np.ceil(schedule.peak_bytes - problem.capacity_bytes)
    return np.maximum(missing, 0).astype(np.int64)


def sent_bytes(problem: Problem, schedule: Schedule) -> IntArray:
    """`[num_devices, num_devices]`: what the transfers of a step carry, from row to column."""
    graph, transfers = problem.graph, schedule.transfers
    sent = np.zeros((problem.num_devices, problem.num_devices), dtype=np.int64)
    src = schedule.device[graph.tensor_producer[transfers.tensor]]
    np.add.at(sent, (src, transfers.dst), graph.tensor_bytes[transfers.tensor])
    return sent


def transfer_channels(problem: Problem, schedule: Schedule) -> IntArray:
    """`[num_transfers]`: the channel that each transfer queues for."""
    transfers = schedule.transfers
    src = schedule.device[problem.graph.tensor_producer[transfers.tensor]]
    channels: IntArray = problem.machine.channel[src, transfers.dst]
    return channels


def rounding_us(schedule: Schedule) -> float:
    """By how much two times may differ that are sums of the same doubles in another order."""
    return ROUNDING * schedule.makespan_us


def objective(problem: Problem, schedule: Schedule) -> tuple[int, float]:
    """Sort key, the lower the better: first what fits into memory, then the makespan."""
    return int(shortfall_bytes(problem, schedule).sum()), schedule.makespan_us
