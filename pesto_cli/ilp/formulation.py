"""The sets and numbers of the formulation, from which both backends build their models.

Ops i are in V, devices d in D, transfers k in K: one for each tensor and device to which it may
have to be sent. Times are in units of `unit_us`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from pesto_cli.bounds import heads, lower_bound_us, tails
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.problem import Problem

# Quotients of decimal durations, such as 2.3 us / 0.001 us, differ from an integer by rounding.
WHOLE_TOLERANCE = 1e-6
# The tolerance of the memory balance has four digits, as CP-SAT's coefficients are integers.
BALANCE_STEPS = 10_000


@dataclass(frozen=True)
class Transfer:
    """A tensor and a device that it may be sent to.

    consumers: the ops that may consume the tensor there.
    time: duration by source device, in the units of the formulation.
    """

    tensor: int
    dst: int
    producer: int
    consumers: tuple[int, ...]
    time: dict[int, float]


@dataclass(frozen=True, eq=False)
class Formulation:
    """The data of a problem for an integer program. Times are in units of `unit_us`.

    op_time: duration of each op, by device on which it may run.
    transfers: the set K.
    signals: pairs (i, j): j starts at least `signal_time` after the end of i if they are on
        different devices.
    horizon: at least one optimal schedule ends by this time.
    lower_bound: a lower bound on the makespan of all schedules.
    """

    problem: Problem
    unit_us: float
    op_time: list[dict[int, float]]
    transfers: list[Transfer]
    signals: list[tuple[int, int]]
    signal_time: float
    horizon: float
    lower_bound: float

    @classmethod
    def build(cls, problem: Problem) -> Self:
        """Return the formulation of a problem, in microseconds."""
        op_time = [
            {int(d): float(problem.duration_us[op, d]) for d in np.flatnonzero(allowed)}
            for op, allowed in enumerate(problem.allowed)
        ]
        transfers, signals = list(_transfers(problem)), sorted(_signals(problem))
        # In a schedule without needless waits, the critical path of the schedule contains each op,
        # transfer and signal at most once.
        horizon = sum(max(times.values()) for times in op_time)
        horizon += sum(max(transfer.time.values()) for transfer in transfers)
        horizon += len(signals) * problem.machine.signal_us
        return cls(
            problem=problem,
            unit_us=1.0,
            op_time=op_time,
            transfers=transfers,
            signals=signals,
            signal_time=problem.machine.signal_us,
            horizon=horizon,
            lower_bound=lower_bound_us(problem),
        )

    def in_units(self, unit_us: float, *, whole: bool) -> Self:
        """Return the formulation in another unit of time.

        whole: round times down to whole units. A bound stays valid, because all feasible schedules
            stay feasible and become no longer.
        """

        def convert(time: float) -> float:
            scaled = time / unit_us
            return float(math.floor(scaled + WHOLE_TOLERANCE)) if whole else scaled

        return replace(
            self,
            unit_us=unit_us,
            op_time=[{d: convert(t) for d, t in times.items()} for times in self.op_time],
            transfers=[
                replace(k, time={s: convert(t) for s, t in k.time.items()}) for k in self.transfers
            ],
            signal_time=convert(self.signal_time),
            horizon=math.ceil(self.horizon / unit_us) if whole else self.horizon / unit_us,
            lower_bound=convert(self.lower_bound),
        )

    @cached_property
    def head(self) -> FloatArray:
        """Lower bound on the start of each op, `[num_ops]`."""
        return heads(self.problem.graph, self._min_time)

    @cached_property
    def tail(self) -> FloatArray:
        """Lower bound on the time from each op's end to the makespan, `[num_ops]`."""
        return tails(self.problem.graph, self._min_time)

    @cached_property
    def _min_time(self) -> FloatArray:
        return np.array([min(times.values()) for times in self.op_time])

    @cached_property
    def transfers_of_op(self) -> list[list[int]]:
        """Indices into `transfers`, by producer."""
        rows: list[list[int]] = [[] for _ in self.op_time]
        for k, transfer in enumerate(self.transfers):
            rows[transfer.producer].append(k)
        return rows

    @cached_property
    def signals_of_op(self) -> list[list[int]]:
        """The ops to which each op may send a signal."""
        rows: list[list[int]] = [[] for _ in self.op_time]
        for before, after in self.signals:
            rows[before].append(after)
        return rows

    @cached_property
    def senders(self) -> dict[int, list[tuple[int, int]]]:
        """By channel, the pairs (k, s): transfer k uses the channel when it is sent from s."""
        senders = defaultdict(list)
        for k, transfer in enumerate(self.transfers):
            for src in transfer.time:
                senders[int(self.problem.machine.channel[src, transfer.dst])].append((k, src))
        return dict(senders)

    @cached_property
    def descendants(self) -> list[int]:
        """For each op, the bit set of the op and all ops that come after it by precedence."""
        graph = self.problem.graph
        reach = [0] * graph.num_ops
        for op in graph.topological_order[::-1].tolist():
            reach[op] = 1 << op
            for after in graph.successors[op].tolist():
                reach[op] |= reach[after]
        return reach

    def open_op_pairs(
        self, check: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, int, list[int]]]:
        """Yield (i, j, devices) for ops without precedence that could overlap on these devices.

        Two zero-time ops cannot overlap. But a zero-time op must not start in the middle of another
        op. `check` is called once for each i, also if no pair is found.
        """
        for i, j in _pairs(self.problem.num_ops, check):
            ordered = self.descendants[i] >> j & 1 or self.descendants[j] >> i & 1
            shared = self.op_time[i].keys() & self.op_time[j].keys()
            devices = sorted(d for d in shared if self.op_time[i][d] or self.op_time[j][d])
            if devices and not ordered:
                yield i, j, devices

    def open_transfer_pairs(
        self, check: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, int, list[int]]]:
        """Yield (k, l, channels) for transfers without precedence that could overlap on these.

        Transfer k precedes l if each consumer of k precedes the producer of l, or is the producer.
        """
        longest: list[dict[int, float]] = [{} for _ in self.transfers]  # by channel
        for channel, senders in self.senders.items():
            for k, s in senders:
                longest[k][channel] = max(longest[k].get(channel, 0.0), self.transfers[k].time[s])
        for k, other in _pairs(len(self.transfers), check):
            shared = longest[k].keys() & longest[other].keys()
            channels = sorted(c for c in shared if longest[k][c] or longest[other][c])
            if channels and not (self._precedes(k, other) or self._precedes(other, k)):
                yield k, other, channels

    def _precedes(self, k: int, other: int) -> bool:
        producer = self.transfers[other].producer
        return all(self.descendants[c] >> producer & 1 for c in self.transfers[k].consumers)

    @cached_property
    def gpu_pairs(self) -> list[tuple[int, int]]:
        """Ordered pairs of devices of the same kind, other than CPUs, for the memory balance."""
        devices, machine = self.problem.machine.devices, self.problem.machine
        return [
            (d, e)
            for d, first in enumerate(devices)
            for e, second in enumerate(devices)
            if d != e and first.kind == second.kind and machine.device_type(first.kind) != "CPU"
        ]

    @cached_property
    def output_bytes(self) -> list[int]:
        """Total output bytes of each op, `[num_ops]`."""
        graph = self.problem.graph
        sums = np.zeros(graph.num_ops, dtype=np.int64)
        np.add.at(sums, graph.tensor_producer, graph.tensor_bytes)
        return [int(total) for total in sums]


def _pairs(count: int, check: Callable[[], None]) -> Iterator[tuple[int, int]]:
    for one in range(count):
        check()
        for other in range(one + 1, count):
            yield one, other


def _transfers(problem: Problem) -> Iterator[Transfer]:
    graph, allowed, group = problem.graph, problem.allowed, problem.graph.colocation_group
    table_us = {
        (s, d): problem.transfer_table_us(s, d)
        for s in range(problem.num_devices)
        for d in range(problem.num_devices)
        if s != d
    }
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        rows = slice(graph.consumer_offsets[tensor], graph.consumer_offsets[tensor + 1])
        takers = [
            int(consumer)
            for consumer, on_host in zip(
                graph.consumers[rows], graph.consumer_on_host[rows], strict=True
            )
            if not on_host and group[consumer] != group[producer]
        ]
        for dst in range(problem.num_devices):
            consumers = tuple(op for op in takers if allowed[op, dst])
            sources = [s for s in np.flatnonzero(allowed[producer]).tolist() if s != dst]
            if consumers and sources:
                time = {src: float(table_us[src, dst][tensor]) for src in sources}
                yield Transfer(tensor, dst, producer, consumers, time)


def _signals(problem: Problem) -> set[tuple[int, int]]:
    graph, group = problem.graph, problem.graph.colocation_group
    producers = graph.tensor_producer[graph.consumer_tensor]
    on_host = np.column_stack((producers, graph.consumers))[graph.consumer_on_host]
    pairs = np.concatenate((graph.control_edges, on_host))
    return {(i, j) for i, j in pairs.tolist() if group[i] != group[j]}
