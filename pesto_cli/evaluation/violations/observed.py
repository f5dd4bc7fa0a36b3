"""A schedule by device and by transfer, in the form that the rules read."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from pesto_cli.data.columns import unique_rows
from pesto_cli.data.graph import BoolArray, FloatArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, rounding_us

# (name of the rule, message)
Finding = tuple[str, str]


@dataclass(frozen=True)
class ObservedTransfer:
    """A row of a schedule's transfers.

    made_us: end of the producer.
    queued_us: earliest and latest instant at which the transfer may queue on its link.
    sent_us, arrived_us: start and end on the link.
    """

    tensor: int
    producer: int
    src: int
    dst: int
    made_us: float
    queued_us: tuple[float, float]
    sent_us: float
    arrived_us: float


@dataclass(frozen=True)
class ObservedSignal:
    """A signal of an op to another device.

    sent_us: earliest and latest instant at which it may be sent.
    """

    op: int
    src: int
    dst: int
    sent_us: tuple[float, float]


class Observed:
    """A schedule with well-formed columns, by device and by transfer.

    device, start_us, end_us: by op. ops: by device, in the order of their ranks.
    transfers: the transfers between two different devices. signals: the signals between them.
    tolerance_us: times that differ by this much at most are equal, if a rule adds up times.
    stepped: the instants at which a transfer or signal of zero time is, or may be, sent and
        arrives. Its consumers may start and end at the same instant, and their outputs may be sent
        again. Such an instant has several rounds in which tensors queue, and times alone do not say
        in which round something happens.
    """

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem, self.schedule = problem, schedule
        self.device: list[int] = schedule.device.tolist()
        self.start_us: list[float] = schedule.start_us.tolist()
        self.end_us: list[float] = schedule.end_us.tolist()
        self.tolerance_us = rounding_us(schedule)
        sent = schedule.transfers
        spans = list(zip(sent.start_us.tolist(), sent.end_us.tolist(), strict=True))
        signals = self._signals()
        self.stepped = {start for start, end in spans if start == end}
        if problem.machine.signal_us == 0:
            self.stepped |= {made + late for *_, made, wait in signals for late in (0.0, wait)}
            self.stepped |= set(self.end_us) if signals else set()
        self.ops: defaultdict[int, list[int]] = defaultdict(list)
        for op in np.lexsort((schedule.rank, schedule.device)).tolist():
            self.ops[self.device[op]].append(op)
        self._starts_us = {d: [self.start_us[op] for op in ops] for d, ops in self.ops.items()}
        producer = problem.graph.tensor_producer[sent.tensor]
        src, made_us = schedule.device[producer], schedule.end_us[producer]
        wait_us = problem.machine.wait_us[src, sent.dst]
        columns = (sent.tensor, producer, src, sent.dst, made_us, wait_us)
        rows = zip(*(column.tolist() for column in columns), spans, strict=True)
        transfers = [
            ObservedTransfer(tensor, producer, src, dst, made, self._queued(src, made, wait), *span)
            for tensor, producer, src, dst, made, wait, span in rows
        ]
        self.transfers = [each for each in transfers if each.src != each.dst]
        self.signals = [
            ObservedSignal(op, src, dst, self._queued(src, made, wait))
            for op, src, dst, made, wait in signals
        ]

    def name(self, op: int) -> str:
        """Return an op's name in quotes."""
        return repr(self.problem.graph.names[op])

    @overload
    def later(self, first_us: FloatArray, second_us: FloatArray) -> BoolArray: ...

    @overload
    def later(self, first_us: float, second_us: float) -> bool: ...

    def later(self, first_us: Any, second_us: Any) -> Any:
        """Return whether the first time is later than the second by more than `tolerance_us`."""
        return first_us > second_us + self.tolerance_us

    def running(self, device: int, from_us: float, to_us: float) -> list[int]:
        """Return the ops of a device that start at `to_us` or before, and end after `from_us`."""
        starts = self._starts_us.get(device, [])
        first = max(0, bisect_right(starts, from_us) - 1)
        ops = self.ops.get(device, [])[first : bisect_right(starts, to_us)]
        return [op for op in ops if self.end_us[op] > from_us]

    def _signals(self) -> list[tuple[int, int, int, float, float]]:
        """Return (op, source, destination, end of the op, longest delay) of each signal."""
        graph, device = self.problem.graph, self.schedule.device
        used = graph.consumer_on_host
        producer = graph.tensor_producer[graph.consumer_tensor[used]]
        before = np.concatenate((graph.control_edges.reshape(-1, 2)[:, 0], producer))
        after = np.concatenate((graph.control_edges.reshape(-1, 2)[:, 1], graph.consumers[used]))
        is_across = device[before] != device[after]
        pairs = np.column_stack((before[is_across], device[after[is_across]]))
        op, dst = unique_rows(pairs).T
        made_us, wait_us = self.schedule.end_us[op], self.problem.machine.wait_us[device[op], dst]
        columns = (op, device[op], dst, made_us, wait_us)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _queued(self, src: int, made_us: float, wait_us: float) -> tuple[float, float]:
        """Return the earliest and latest instant at which a tensor may queue, or a signal be sent.

        The tensor queues when its producer's device is idle, but not later than `wait_us` after the
        end of the producer.
        """
        running = self.running(src, made_us, made_us) if wait_us > 0 else []
        if not running:
            return made_us, made_us
        earliest, latest = self._idle_us[running[-1]]
        if self.start_us[running[-1]] == made_us and made_us in self.stepped:
            earliest = made_us
        return min(earliest, made_us + wait_us), min(latest, made_us + wait_us)

    @cached_property
    def _idle_us(self) -> dict[int, tuple[float, float]]:
        """By op: earliest and latest instant when its device is first idle after the op starts."""
        idle_us = {}
        for ops in self.ops.values():
            for op, after in zip(ops[::-1], [None, *ops[:0:-1]], strict=True):
                end_us = self.end_us[op]
                if after is None or self.start_us[after] != end_us:
                    idle_us[op] = end_us, end_us
                else:
                    earliest, latest = idle_us[after]
                    idle_us[op] = end_us if end_us in self.stepped else earliest, latest
        return idle_us
