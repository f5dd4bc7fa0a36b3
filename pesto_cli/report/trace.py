"""A schedule as a Chrome trace, for Perfetto or chrome://tracing.

The format is Google's "Trace Event Format": `X` is a slice of a row, `C` the value of a counter
from then on, `s` and `f` the start and end of an arrow, `M` the names of processes and rows.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, transfer_channels

# Processes.
DEVICES, LINKS = 1, 2
# The thread number of the first row. Perfetto moves slices of thread 0, and of the thread with the
# number of its process, into the row of a "main thread".
FIRST_ROW = 3

# Times in us, ascending from 0, and the bytes that a device holds from each time on.
Held = tuple[FloatArray, IntArray]
Event = dict[str, Any]


@dataclass(frozen=True)
class _Slice:
    """An op or a transfer in a row of the trace."""

    process: int
    row: int
    name: str
    start_ns: int
    end_ns: int


def chrome_trace(problem: Problem, schedule: Schedule, held: Sequence[Held]) -> dict[str, Any]:
    """Return a trace with a row for each device and channel, and a memory counter for each device.

    Arrows lead from the producer of a tensor to its transfer, and from there to its consumers on
    the receiver. Times are in us, as in the format.
    """
    machine = problem.machine
    ops = [_op_slice(problem, schedule, op) for op in range(problem.num_ops)]
    sent = [
        _transfer_slice(problem, schedule, row, channel)
        for row, channel in enumerate(transfer_channels(problem, schedule).tolist())
    ]
    events = [
        *_names(DEVICES, "devices", [device.name for device in machine.devices]),
        *_names(LINKS, "links", machine.channel_names),
        *(_complete(each, {"type": problem.graph.types[op]}) for op, each in enumerate(ops)),
        *(
            _complete(each, _transfer_details(problem, schedule, row))
            for row, each in enumerate(sent)
        ),
        *_counters(problem, held),
        *_arrows(problem, schedule, ops, sent),
    ]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _names(process: int, name: str, rows: Sequence[str]) -> Iterator[Event]:
    """Yield the names and positions of a process and its rows."""
    about: Event = {"ph": "M", "pid": process, "tid": FIRST_ROW}
    yield {**about, "name": "process_name", "args": {"name": name}}
    yield {**about, "name": "process_sort_index", "args": {"sort_index": process}}
    for row, row_name in enumerate(rows, FIRST_ROW):
        yield {**about, "tid": row, "name": "thread_name", "args": {"name": row_name}}
        yield {**about, "tid": row, "name": "thread_sort_index", "args": {"sort_index": row}}


def _op_slice(problem: Problem, schedule: Schedule, op: int) -> _Slice:
    times = _ns(schedule.start_us[op]), _ns(schedule.end_us[op])
    return _Slice(DEVICES, int(schedule.device[op]), problem.graph.names[op], *times)


def _transfer_slice(problem: Problem, schedule: Schedule, row: int, channel: int) -> _Slice:
    transfers = schedule.transfers
    producer = int(problem.graph.tensor_producer[transfers.tensor[row]])
    times = _ns(transfers.start_us[row]), _ns(transfers.end_us[row])
    return _Slice(LINKS, channel, problem.graph.names[producer], *times)


def _transfer_details(problem: Problem, schedule: Schedule, row: int) -> Event:
    transfers, machine = schedule.transfers, problem.machine
    size = int(problem.graph.tensor_bytes[transfers.tensor[row]])
    return {"bytes": size, "to": machine.devices[int(transfers.dst[row])].name}


def _complete(slice_: _Slice, details: Event) -> Event:
    return {
        "ph": "X",
        "pid": slice_.process,
        "tid": FIRST_ROW + slice_.row,
        "name": slice_.name,
        "cat": "op" if slice_.process == DEVICES else "transfer",
        "ts": on_grid_us(slice_.start_ns),
        "dur": on_grid_us(slice_.end_ns - slice_.start_ns),
        "args": details,
    }


def _ns(time_us: float) -> int:
    return round(float(time_us) * 1000)


def on_grid_us(time_ns: int) -> float:
    """Return a time in us from which a reader gets this number of ns, by rounding or truncating.

    Otherwise consecutive slices would sometimes overlap by 1 ns, and Perfetto would draw one of
    them inside the other.
    """
    time_us = time_ns / 1000
    return time_us if int(time_us * 1000) == time_ns else math.nextafter(time_us, math.inf)


def _counters(problem: Problem, held: Sequence[Held]) -> Iterator[Event]:
    for device, (since_us, num_bytes) in zip(problem.machine.devices, held, strict=True):
        for at_us, size in zip(since_us.tolist(), num_bytes.tolist(), strict=True):
            name, ts, value = f"{device.name} memory", on_grid_us(_ns(at_us)), {"bytes": size}
            yield {"ph": "C", "pid": DEVICES, "name": name, "ts": ts, "args": value}


def _arrows(
    problem: Problem, schedule: Schedule, ops: Sequence[_Slice], sent: Sequence[_Slice]
) -> Iterator[Event]:
    graph, transfers = problem.graph, schedule.transfers
    number = 0
    for row, (tensor, dst) in enumerate(
        zip(transfers.tensor.tolist(), transfers.dst.tolist(), strict=True)
    ):
        entries = range(
            int(graph.consumer_offsets[tensor]), int(graph.consumer_offsets[tensor + 1])
        )
        takers = [
            int(graph.consumers[entry])
            for entry in entries
            if schedule.device[graph.consumers[entry]] == dst and not graph.consumer_on_host[entry]
        ]
        pairs = [(ops[int(graph.tensor_producer[tensor])], sent[row])]
        pairs += [(sent[row], ops[taker]) for taker in takers]
        for tail, head in pairs:
            # Perfetto finds the slice of an endpoint by its time, which fails for an empty slice.
            if tail.end_ns > tail.start_ns and head.end_ns > head.start_ns:
                number += 1
                yield _end("s", number, tail, (tail.start_ns + tail.end_ns) // 2)
                yield {**_end("f", number, head, head.start_ns), "bp": "e"}


def _end(phase: str, number: int, slice_: _Slice, at_ns: int) -> Event:
    return {
        "ph": phase,
        "id": number,
        "pid": slice_.process,
        "tid": FIRST_ROW + slice_.row,
        "name": "transfer",
        "cat": "transfer",
        "ts": on_grid_us(at_ns),
    }
