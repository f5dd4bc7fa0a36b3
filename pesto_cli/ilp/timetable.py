"""Convert between a schedule and the variables of an integer program, with left-shifted times."""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from pesto_cli.data.schedule import Schedule, Transfers
from pesto_cli.ilp.formulation import Formulation


@dataclass(frozen=True)
class Timetable:
    """Values of an integer program's variables, in the units of its formulation.

    device, op_start, op_end: one value for each op.
    sent, transfer_start, transfer_end: one value for each transfer. A transfer that is not sent
        starts and ends at the end of its producer.
    """

    device: list[int]
    op_start: list[float]
    op_end: list[float]
    sent: list[bool]
    transfer_start: list[float]
    transfer_end: list[float]

    @property
    def makespan(self) -> float:
        """End of the last op."""
        return max(self.op_end, default=0.0)


def is_sent(formulation: Formulation, device: list[int]) -> list[bool]:
    """Return for each transfer whether a placement needs it."""
    return [
        device[k.producer] != k.dst and any(device[c] == k.dst for c in k.consumers)
        for k in formulation.transfers
    ]


def timetable_of(formulation: Formulation, schedule: Schedule) -> Timetable:
    """Return the values of the variables in a schedule, for a formulation in microseconds."""
    transfers = schedule.transfers
    span_us = {
        (tensor, dst): (start, end)
        for tensor, dst, start, end in zip(
            transfers.tensor.tolist(),
            transfers.dst.tolist(),
            transfers.start_us.tolist(),
            transfers.end_us.tolist(),
            strict=True,
        )
    }
    end_us = schedule.end_us.tolist()
    spans = [
        span_us.get((k.tensor, k.dst), (end_us[k.producer],) * 2) for k in formulation.transfers
    ]
    device = schedule.device.tolist()
    return Timetable(
        device=device,
        op_start=schedule.start_us.tolist(),
        op_end=end_us,
        sent=is_sent(formulation, device),
        transfer_start=[start for start, _ in spans],
        transfer_end=[end for _, end in spans],
    )


def left_shift(formulation: Formulation, times: Timetable, *, congestion: bool) -> Timetable:
    """Return a timetable in which all starts are as early as precedence and the orders allow.

    Only the orders on devices and channels are taken from the given times, which may be in any
    unit. Durations come from the formulation. So integer times become exact times, or the reverse,
    and the makespan changes only by the differences in duration. Ops and transfers are ordered by
    the middle of their given times, as the rounding of a solver may put a start after the start of
    a zero-time op. Predecessors come first in any case.
    """
    num_ops, device = len(times.device), times.device
    given_start = times.op_start + times.transfer_start
    given_end = times.op_end + times.transfer_end
    middle = [start + end for start, end in zip(given_start, given_end, strict=True)]
    successors = _successors(formulation, times)
    missing = [0] * len(middle)
    for rows in successors:
        for after, _ in rows:
            missing[after] += 1
    position = np.argsort(formulation.problem.graph.topological_order).tolist()
    position += [position[k.producer] for k in formulation.transfers]

    start, end = [0.0] * len(middle), [0.0] * len(middle)
    free: dict[tuple[str, int], float] = {}
    ready = [(middle[node], position[node], node) for node in range(num_ops) if not missing[node]]
    heapify(ready)
    while ready:
        node = heappop(ready)[-1]
        resource, duration = _demand(formulation, times, node)
        if resource is not None and (congestion or node < num_ops):
            start[node] = max(start[node], free.get(resource, 0.0))
            free[resource] = start[node] + duration
        end[node] = start[node] + duration
        for after, delay in successors[node]:
            start[after] = max(start[after], end[node] + delay)
            missing[after] -= 1
            if not missing[after]:
                heappush(ready, (middle[after], position[after], after))
    return Timetable(
        device, start[:num_ops], end[:num_ops], times.sent, start[num_ops:], end[num_ops:]
    )


def _successors(formulation: Formulation, times: Timetable) -> list[list[tuple[int, float]]]:
    """Return the successors of each op, then of each transfer, as pairs (successor, delay)."""
    device, num_ops = times.device, len(times.device)
    graph = formulation.problem.graph
    successors: list[list[tuple[int, float]]] = [
        [(after, 0.0) for after in graph.successors[op].tolist()] for op in range(num_ops)
    ]
    for before, after in formulation.signals:
        if device[before] != device[after]:
            successors[before].append((after, formulation.signal_time))
    for k, transfer in enumerate(formulation.transfers):
        successors[transfer.producer].append((num_ops + k, 0.0))
        successors.append(
            [(c, 0.0) for c in transfer.consumers if times.sent[k] and device[c] == transfer.dst]
        )
    return successors


def _demand(
    formulation: Formulation, times: Timetable, node: int
) -> tuple[tuple[str, int] | None, float]:
    """Return the device or channel that an op or transfer occupies, and for how long.

    A transfer that is not sent occupies nothing: (None, 0).
    """
    num_ops = len(times.device)
    if node < num_ops:
        device = times.device[node]
        return ("device", device), formulation.op_time[node][device]
    if not times.sent[node - num_ops]:
        return None, 0.0
    transfer = formulation.transfers[node - num_ops]
    src = times.device[transfer.producer]
    channel = int(formulation.problem.machine.channel[src, transfer.dst])
    return ("channel", channel), transfer.time[src]


def schedule_of(formulation: Formulation, times: Timetable) -> Schedule:
    """Return the schedule of a left-shifted timetable in microseconds."""
    # Imported here, as importing the simulator compiles it.
    from pesto_cli.evaluation.memory import peak_bytes

    problem = formulation.problem
    device = np.array(times.device, dtype=np.int64)
    start_us, end_us = np.array(times.op_start), np.array(times.op_end)
    rank = np.zeros(problem.num_ops, dtype=np.int64)
    position = np.argsort(problem.graph.topological_order)
    for index in range(problem.num_devices):
        ops = np.flatnonzero(device == index)
        order = np.lexsort((position[ops], end_us[ops], start_us[ops]))
        rank[ops[order]] = np.arange(len(ops))
    rows = [k for k, sent in enumerate(times.sent) if sent]
    transfers = Transfers(
        tensor=np.array([formulation.transfers[k].tensor for k in rows], dtype=np.int64),
        dst=np.array([formulation.transfers[k].dst for k in rows], dtype=np.int64),
        start_us=np.array([times.transfer_start[k] for k in rows], dtype=np.float64),
        end_us=np.array([times.transfer_end[k] for k in rows], dtype=np.float64),
    )
    peak = peak_bytes(problem, device, start_us, end_us, transfers)
    return Schedule(device, rank, start_us, end_us, transfers, peak)
