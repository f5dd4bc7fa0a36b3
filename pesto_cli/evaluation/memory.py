"""Memory over time: the largest sum of what a device holds during a schedule."""

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray, OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Held, MemoryPeak
from pesto_cli.data.schedule import Schedule, Transfers
from pesto_cli.kernels import kernel

SPANS = 64  # of time, all equally long, in `surely_fits`


def peak_bytes(
    problem: Problem,
    device: IntArray,
    start_us: FloatArray,
    end_us: FloatArray,
    transfers: Transfers,
) -> IntArray:
    """`[num_devices]`: the largest sum over time of what a device holds.

    Variables throughout; an output from its op's start, a received copy from its transfer's start,
    each to the end of its last local consumer and outgoing transfer. An alias holds nothing of its
    own, but keeps what it aliases for as long as it is used.
    """
    resident = np.zeros(problem.num_devices, dtype=np.int64)
    np.add.at(resident, device, problem.graph.resident_bytes)
    peak: IntArray = peak_held_bytes(
        memory_columns(problem.graph),
        np.ascontiguousarray(device, dtype=np.int64),
        start_us,
        end_us,
        transfers.tensor,
        transfers.dst,
        transfers.start_us,
        transfers.end_us,
        resident,
    )
    return peak


def memory_peak(problem: Problem, schedule: Schedule, device: int) -> MemoryPeak:
    """What a device holds at the first instant at which it holds most."""
    graph, transfers = problem.graph, schedule.transfers
    size, where, begin_us, until_us = _copies(problem, schedule)
    since_us, num_bytes = _held(problem, schedule, device, (size, where, begin_us, until_us))
    at_us = float(since_us[num_bytes.argmax()])
    is_held = (where == device) & (size > 0) & (begin_us <= at_us) & (at_us < until_us)
    held = []
    for copy in np.flatnonzero(is_held).tolist():
        is_copy = copy >= graph.num_tensors
        tensor = int(transfers.tensor[copy - graph.num_tensors]) if is_copy else copy
        op = graph.names[graph.tensor_producer[tensor]]
        held.append(Held(op, "copy" if is_copy else "output", int(size[copy]), begin_us[copy]))
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
    """Of every device: since when, ascending from 0, it holds how many bytes.

    The most of it is the schedule's `peak_bytes`.
    """
    copies = _copies(problem, schedule)
    return [_held(problem, schedule, device, copies) for device in range(problem.num_devices)]


_Copies = tuple[IntArray, IntArray, FloatArray, FloatArray]


def _copies(problem: Problem, schedule: Schedule) -> _Copies:
    """As `held_copies` has them."""
    transfers = schedule.transfers
    copies: _Copies = held_copies(
        memory_columns(problem.graph),
        np.ascontiguousarray(schedule.device, dtype=np.int64),
        schedule.start_us,
        schedule.end_us,
        transfers.tensor,
        transfers.dst,
        transfers.start_us,
        transfers.end_us,
    )
    return copies


def _held(
    problem: Problem, schedule: Schedule, device: int, copies: _Copies
) -> tuple[FloatArray, IntArray]:
    """What a device holds over time; what ends at an instant is held no more then."""
    size, where, begin_us, until_us = copies
    here = np.flatnonzero((where == device) & (size > 0) & (until_us > begin_us))
    since_us, instant = np.unique(
        np.concatenate(([0.0], begin_us[here], until_us[here])), return_inverse=True
    )
    change = np.zeros(len(since_us), dtype=np.int64)
    np.add.at(change, instant[1:], np.concatenate((size[here], -size[here])))
    change[0] += problem.graph.resident_bytes[schedule.device == device].sum()
    return since_us, np.cumsum(change)


def memory_columns(graph: OpGraph) -> tuple[IntArray, ...]:
    """What `peak_held_bytes` has to know of a graph; at the end, its tensors, last ones first."""
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.topological_order] = np.arange(graph.num_ops)
    reverse = np.argsort(-position[graph.tensor_producer], kind="stable")
    return (
        graph.tensor_producer,
        graph.tensor_bytes,
        graph.held_bytes,
        graph.consumer_tensor,
        graph.consumers,
        graph.alias_source,
        reverse,
    )


@kernel
def held_copies(memory, device, start, end, sent_tensor, sent_to, sent, arrived):  # type: ignore[no-untyped-def]
    """Size, device, begin and end of every copy of a tensor; an alias has size 0.

    Tensor t at home is copy t, transfer r makes copy num_tensors + r.
    """
    producer, num_bytes, held_bytes, consumer_tensor, consumers, alias_source, reverse = memory
    num_tensors, num_sent = len(producer), len(sent_tensor)
    size = np.empty(num_tensors + num_sent, np.int64)
    where = np.empty(num_tensors + num_sent, np.int64)
    begin = np.empty(num_tensors + num_sent)
    until = np.empty(num_tensors + num_sent)
    next_copy = np.full(num_tensors + num_sent, -1, np.int64)
    for tensor in range(num_tensors):
        op = producer[tensor]
        size[tensor], where[tensor] = held_bytes[tensor], device[op]
        begin[tensor], until[tensor] = start[op], end[op]
    for row in range(num_sent):
        copy, tensor = num_tensors + row, sent_tensor[row]
        size[copy], where[copy] = num_bytes[tensor], sent_to[row]
        begin[copy], until[copy] = sent[row], arrived[row]
        next_copy[copy], next_copy[tensor] = next_copy[tensor], copy
        until[tensor] = max(until[tensor], arrived[row])
    for entry in range(len(consumers)):
        copy, op = consumer_tensor[entry], consumers[entry]
        while copy >= 0:
            if where[copy] == device[op]:
                until[copy] = max(until[copy], end[op])
            copy = next_copy[copy]
    for tensor in reverse:
        copy = alias_source[tensor]
        while copy >= 0:
            if where[copy] == where[tensor]:
                until[copy] = max(until[copy], until[tensor])
                size[tensor] = 0
            copy = next_copy[copy]
    return size, where, begin, until


@kernel
def peak_held_bytes(memory, device, start, end, sent_tensor, sent_to, sent, arrived, resident):  # type: ignore[no-untyped-def]
    """`[num_devices]`: see `peak_bytes`."""
    size, where, begin, until = held_copies(
        memory, device, start, end, sent_tensor, sent_to, sent, arrived
    )
    held = np.flatnonzero((until > begin) & (size > 0))
    # Frees first, so that the stable sort leaves them before allocations of the same instant.
    times = np.concatenate((until[held], begin[held]))
    now, peak = resident.copy(), resident.copy()
    for event in np.argsort(times, kind="mergesort"):
        copy = held[event % len(held)]
        here = where[copy]
        if event < len(held):
            now[here] -= size[copy]
        else:
            now[here] += size[copy]
            peak[here] = max(peak[here], now[here])
    return peak


@kernel
def surely_fits(  # type: ignore[no-untyped-def]
    memory, device, start, end, sent_tensor, sent_to, sent, arrived, resident, capacity
):
    """Whether no device would be full if it held each copy throughout all spans that it touches.

    Several times as fast as the peak, which this is never below, as nothing has to be sorted.
    """
    size, where, begin, until = held_copies(
        memory, device, start, end, sent_tensor, sent_to, sent, arrived
    )
    makespan = until.max() if len(until) > 0 else 0.0
    spans_per_us = (SPANS - 1) / makespan if makespan > 0.0 else 0.0
    change = np.zeros((len(capacity), SPANS + 1), np.int64)
    for copy in range(len(size)):
        change[where[copy], np.int64(begin[copy] * spans_per_us)] += size[copy]
        change[where[copy], np.int64(until[copy] * spans_per_us) + 1] -= size[copy]
    for here in range(len(capacity)):
        held = resident[here]
        for span in range(SPANS):
            held += change[here, span]
            if held > capacity[here]:
                return False
    return True
