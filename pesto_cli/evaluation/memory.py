"""The memory of devices over time during a schedule, and its peak."""

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Held, MemoryPeak
from pesto_cli.data.schedule import Schedule, Transfers
from pesto_cli.evaluation.copies import Copies, MemoryColumns, held_copies, peak_held_bytes
from pesto_cli.evaluation.times import Times


def peak_bytes(
    problem: Problem,
    device: IntArray,
    start_us: FloatArray,
    end_us: FloatArray,
    transfers: Transfers,
) -> IntArray:
    """Return the peak memory of each device in bytes, `[num_devices]`.

    Variables are held throughout. An output is held from its op's start, a received copy from its
    transfer's start, each until its last local consumer and outgoing transfer have ended. An alias
    uses no memory, but the tensor that it aliases is held as long as the alias is used.
    """
    resident = np.zeros(problem.num_devices, dtype=np.int64)
    np.add.at(resident, device, problem.graph.resident_bytes)
    times = Times.of(start_us, end_us, transfers)
    device = np.ascontiguousarray(device, dtype=np.int64)
    columns = MemoryColumns.of(problem.graph)
    peak: IntArray = peak_held_bytes(columns, device, times, resident)
    return peak


def memory_peak(problem: Problem, schedule: Schedule, device: int) -> MemoryPeak:
    """Return the data that a device holds at the first instant of its peak."""
    graph, transfers = problem.graph, schedule.transfers
    copies = _copies(problem, schedule)
    since_us, num_bytes = _held(problem, schedule, device, copies)
    at_us = float(since_us[num_bytes.argmax()])
    is_held = (copies.device == device) & (copies.num_bytes > 0)
    is_held &= (copies.begin_us <= at_us) & (at_us < copies.until_us)
    held = []
    for copy in np.flatnonzero(is_held).tolist():
        is_copy = copy >= graph.num_tensors
        tensor = int(transfers.tensor[copy - graph.num_tensors]) if is_copy else copy
        op = graph.names[graph.tensor_producer[tensor]]
        held.append(
            Held(
                op,
                "copy" if is_copy else "output",
                int(copies.num_bytes[copy]),
                copies.begin_us[copy],
            )
        )
    variables = np.flatnonzero((schedule.device == device) & (graph.resident_bytes > 0))
    for op in variables.tolist():
        held.append(Held(graph.names[op], "variable", int(graph.resident_bytes[op]), 0.0))
    return MemoryPeak(
        device=problem.machine.devices[device].name,
        capacity_bytes=int(problem.capacity_bytes[device]),
        at_us=at_us,
        held=tuple(sorted(held, key=lambda each: -each.num_bytes)),
    )


def held_over_time(problem: Problem, schedule: Schedule) -> list[tuple[FloatArray, IntArray]]:
    """Return (times in us, bytes held from each time on) for every device.

    Times are ascending and begin with 0. The maximum of the bytes is the schedule's `peak_bytes`.
    """
    copies = _copies(problem, schedule)
    return [_held(problem, schedule, device, copies) for device in range(problem.num_devices)]


def _copies(problem: Problem, schedule: Schedule) -> Copies:
    copies: Copies = held_copies(
        MemoryColumns.of(problem.graph),
        np.ascontiguousarray(schedule.device, dtype=np.int64),
        Times.of(schedule.start_us, schedule.end_us, schedule.transfers),
    )
    return copies


def _held(
    problem: Problem, schedule: Schedule, device: int, copies: Copies
) -> tuple[FloatArray, IntArray]:
    """Return the bytes that a device holds over time; data is freed at the instant of its end."""
    is_held = (copies.device == device) & (copies.num_bytes > 0)
    here = np.flatnonzero(is_held & (copies.until_us > copies.begin_us))
    since_us, instant = np.unique(
        np.concatenate(([0.0], copies.begin_us[here], copies.until_us[here])), return_inverse=True
    )
    change, num_bytes = np.zeros(len(since_us), dtype=np.int64), copies.num_bytes[here]
    np.add.at(change, instant[1:], np.concatenate((num_bytes, -num_bytes)))
    change[0] += problem.graph.resident_bytes[schedule.device == device].sum()
    return since_us, np.cumsum(change)
