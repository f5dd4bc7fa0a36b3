"""The cause of every op's and transfer's start, and the critical path of a schedule.

An op starts when its last input arrives, or when the previous op on its device ends. A transfer
starts when its tensor is produced, when the previous transfer on its link ends, or when the delay
by a computing sender ends. In a schedule of the simulator nothing starts later. So the op that ends
last was delayed by something that ended just before it started, that in turn by something else, and
so on back to the start of the step. This is the critical path of the schedule: it has no gaps and
is as long as the makespan. Unlike the critical path of the graph, it includes busy devices and
links.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, rounding_us, transfer_channels
from pesto_cli.evaluation.work import work_us


class Reason(StrEnum):
    """What an op or a transfer waited for.

    START: nothing; it begins the step.
    PREDECESSOR: the end of a predecessor on the same device; for a transfer, of its producer.
    TRANSFER: the arrival of a tensor.
    SIGNAL: the arrival of a signal from an op on another device.
    DEVICE: the end of another op on its device.
    ORDER: the end of another op on its device, which was idle in between, because that op comes
        first in the execution order.
    LINK: the end of another transfer on the link.
    SENDER: the delay by a sender that computed.
    """

    START = "start"
    PREDECESSOR = "predecessor"
    TRANSFER = "transfer"
    SIGNAL = "signal"
    DEVICE = "device"
    ORDER = "order"
    LINK = "link"
    SENDER = "sender"


@dataclass(frozen=True)
class Cause:
    """The event that an op or a transfer waited for.

    why: the kind of event.
    op: the op that ended or sent the signal; for a transfer, its producer; -1 for START.
    transfer: the row of `Transfers` that ended; -1 if an op ended.
    since_us: when the op or transfer ended. until_us: when the wait ended, which is later than
        `since_us` only for SIGNAL and SENDER.
    """

    why: Reason
    op: int = -1
    transfer: int = -1
    since_us: float = 0.0
    until_us: float = 0.0


class SegmentKind(StrEnum):
    """The kind of a segment of the critical path: an op, a transfer, or a wait between them."""

    OP = "op"
    TRANSFER = "transfer"
    SIGNAL = "signal"
    SENDER = "sender"


@dataclass(frozen=True)
class Segment:
    """A segment of the critical path of a schedule, from `start_us` to `end_us`.

    op: the op that runs or sends the signal; for a transfer, the producer of its tensor.
    transfer: row of `Transfers`, or -1.
    cause: why the op or transfer starts then; it refers to the previous segment.
    """

    kind: SegmentKind
    op: int
    transfer: int
    start_us: float
    end_us: float
    cause: Cause

    @property
    def duration_us(self) -> float:
        """The length of the segment; all lengths add up to the makespan."""
        return self.end_us - self.start_us


class CauseFinder:
    """Finds the causes of starts in a schedule of the simulator."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem, self.schedule = problem, schedule
        queue = np.lexsort((schedule.rank, schedule.device))
        sizes = np.bincount(schedule.device, minlength=problem.num_devices)
        rows = np.split(queue, np.cumsum(sizes)[:-1])
        self._runs_us = [(schedule.start_us[row], schedule.end_us[row]) for row in rows]
        self._before = _before(queue, schedule.device)
        self._rounding_us = rounding_us(schedule)
        # Single elements are read several times faster from lists.
        self._device: list[int] = schedule.device.tolist()
        self._end_us: list[float] = schedule.end_us.tolist()
        self._producer: list[int] = problem.graph.tensor_producer.tolist()

    def of_op(self, op: int) -> Cause:
        """Return what an op waited for last; if several waits ended together, one for an input."""
        last = max(
            self.inputs_of(op), key=lambda cause: cause.until_us, default=Cause(Reason.START)
        )
        before = int(self._before[op])
        if before < 0 or self._end_us[before] <= last.until_us:
            return last
        is_idle = self._idle_since_us(op, last.until_us) > self._rounding_us
        return self._ended(Reason.ORDER if is_idle else Reason.DEVICE, before)

    def of_transfer(self, row: int) -> Cause:
        """Return what a transfer waited for last."""
        transfers = self.schedule.transfers
        producer, start_us = self.producer_of(row), float(transfers.start_us[row])
        made = self._ended(Reason.PREDECESSOR, producer)
        before = int(self._before_on_link[row])
        if made.until_us >= start_us:
            return made
        if before >= 0 and transfers.end_us[before] >= start_us:
            return self._arrived(Reason.LINK, before)
        return Cause(Reason.SENDER, producer, since_us=made.until_us, until_us=start_us)

    def inputs_of(self, op: int) -> list[Cause]:
        """Return a cause for every input of an op: tensors and control edges."""
        device, found = self._device[op], []
        for tensor, on_host in self._taken_by(op):
            row = self.row_of.get((tensor, device))
            if row is None or on_host:
                found.append(self._end_or_signal(self._producer[tensor], op))
            else:
                found.append(self._arrived(Reason.TRANSFER, row))
        control = self._control_before.get(op, ())
        return found + [self._end_or_signal(before, op) for before in control]

    def ready_us(self, op: int) -> float:
        """Return when the last input of an op arrived."""
        return max((cause.until_us for cause in self.inputs_of(op)), default=0.0)

    def idle_us(self, op: int) -> float:
        """Return how long the device was idle while an op was ready, due to the execution order."""
        return self._idle_since_us(op, self.ready_us(op))

    def _idle_since_us(self, op: int, ready_us: float) -> float:
        schedule = self.schedule
        start_us, end_us = self._runs_us[schedule.device[op]]
        first, last = np.searchsorted(end_us, ready_us), int(schedule.rank[op])
        ran_us = end_us[first:last] - np.maximum(start_us[first:last], ready_us)
        return float(schedule.start_us[op]) - ready_us - float(ran_us.sum())

    def producer_of(self, row: int) -> int:
        """Return the op that produced the tensor of a transfer."""
        return self._producer[int(self.schedule.transfers.tensor[row])]

    def _end_or_signal(self, before: int, op: int) -> Cause:
        """Return the end of an op on the same device, or the signal of an op on another device."""
        if self._device[before] == self._device[op]:
            return self._ended(Reason.PREDECESSOR, before)
        since_us = self._end_us[before]
        sent_us = self._sent_us(before, self._device[op])
        # The device may have sent the signal before it started an op at the same instant.
        start_us = float(self.schedule.start_us[op])
        until_us = min(sent_us + self.problem.machine.signal_us, start_us)
        return Cause(Reason.SIGNAL, before, since_us=since_us, until_us=until_us)

    def _sent_us(self, op: int, dst: int) -> float:
        """Return when the signal of an op is sent: once its device is idle, or after `wait_us`."""
        end_us, here = self._end_us[op], self._device[op]
        wait_us = float(self.problem.machine.wait_us[here, dst])
        if wait_us == 0:
            return end_us
        start_us, ends_us = self._runs_us[here]
        after = int(np.searchsorted(start_us, end_us))
        idle_us = end_us
        while after < len(start_us) and start_us[after] <= idle_us < end_us + wait_us:
            idle_us = max(idle_us, float(ends_us[after]))
            after += 1
        return min(idle_us, end_us + wait_us)

    def _ended(self, why: Reason, op: int) -> Cause:
        end_us = self._end_us[op]
        return Cause(why, op, since_us=end_us, until_us=end_us)

    def _arrived(self, why: Reason, row: int) -> Cause:
        end_us = float(self.schedule.transfers.end_us[row])
        return Cause(why, self.producer_of(row), row, end_us, end_us)

    @cached_property
    def work_us(self) -> FloatArray:
        """`[num_ops]`: the time that each op would have taken without contention."""
        return work_us(self.problem, self.schedule)

    @cached_property
    def row_of(self) -> dict[tuple[int, int], int]:
        """(tensor, device) -> row of the transfer."""
        transfers = self.schedule.transfers
        made = zip(transfers.tensor.tolist(), transfers.dst.tolist(), strict=True)
        return {key: row for row, key in enumerate(made)}

    @cached_property
    def channel(self) -> IntArray:
        """`[num_transfers]`: the channel in which each transfer queues."""
        return transfer_channels(self.problem, self.schedule)

    @cached_property
    def _before_on_link(self) -> IntArray:
        transfers = self.schedule.transfers
        queue = np.lexsort((transfers.end_us, transfers.start_us, self.channel))
        return _before(queue, self.channel)

    def _taken_by(self, op: int) -> list[tuple[int, bool]]:
        """Return (tensor, whether in host memory) for each tensor that an op takes."""
        offsets, taken = self._taken
        return taken[offsets[op] : offsets[op + 1]]

    @cached_property
    def _taken(self) -> tuple[list[int], list[tuple[int, bool]]]:
        """Row offsets, `[num_ops + 1]`, and the results of `_taken_by` for all ops."""
        graph = self.problem.graph
        by_op = np.argsort(graph.consumers, kind="stable")
        offsets = np.searchsorted(graph.consumers[by_op], np.arange(graph.num_ops + 1))
        tensors, on_host = graph.consumer_tensor[by_op], graph.consumer_on_host[by_op]
        return offsets.tolist(), list(zip(tensors.tolist(), on_host.tolist(), strict=True))

    @cached_property
    def _control_before(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for before, after in self.problem.graph.control_edges.tolist():
            found.setdefault(after, []).append(before)
        return found


def cause_of(problem: Problem, schedule: Schedule, op: int) -> Cause:
    """Return what one op waited for last; for several ops, use one `CauseFinder`."""
    return CauseFinder(problem, schedule).of_op(op)


def schedule_critical_path(problem: Problem, schedule: Schedule) -> tuple[Segment, ...]:
    """Return the segments of the critical path in order; each begins when the one before ends."""
    causes, transfers = CauseFinder(problem, schedule), schedule.transfers
    segments: list[Segment] = []
    op, row = (int(schedule.end_us.argmax()), -1) if problem.num_ops else (-1, -1)
    while op >= 0:
        if row < 0:
            kind, cause = SegmentKind.OP, causes.of_op(op)
            start_us, end_us = float(schedule.start_us[op]), float(schedule.end_us[op])
        else:
            kind, cause = SegmentKind.TRANSFER, causes.of_transfer(row)
            start_us, end_us = float(transfers.start_us[row]), float(transfers.end_us[row])
        segments.append(Segment(kind, op, row, start_us, end_us, cause))
        if cause.why in (Reason.SIGNAL, Reason.SENDER):
            waiting = SegmentKind(cause.why.value)
            segments.append(Segment(waiting, cause.op, row, cause.since_us, cause.until_us, cause))
        op, row = cause.op, cause.transfer
    return tuple(reversed(segments))


def _before(queue: IntArray, owner: IntArray) -> IntArray:
    """Return the entry before each entry in the queue of its owner, or -1.

    `queue` has the entries of all owners, one owner after the other.
    """
    before = np.full(len(queue), -1, dtype=np.int64)
    same = owner[queue[1:]] == owner[queue[:-1]]
    before[queue[1:][same]] = queue[:-1][same]
    return before
