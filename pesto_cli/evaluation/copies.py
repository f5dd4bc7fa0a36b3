"""Kernels for the copies of tensors that devices hold during a schedule, and their peak."""

from typing import NamedTuple

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray, OpGraph
from pesto_cli.evaluation.times import Times
from pesto_cli.kernels import kernel, step

SPANS = 64  # number of equal time spans in `surely_fits`


class MemoryColumns(NamedTuple):
    """The columns of a graph that the kernels read.

    producer, num_bytes, held_bytes: `[num_tensors]`, as in `OpGraph`.
    consumer_tensor, consumers: `[num_entries]`, as in `OpGraph`.
    alias_source: `[num_tensors]`, as in `OpGraph`.
    last_first: `[num_tensors]`, tensors in reverse topological order of their producers.
    """

    producer: IntArray
    num_bytes: IntArray
    held_bytes: IntArray
    consumer_tensor: IntArray
    consumers: IntArray
    alias_source: IntArray
    last_first: IntArray

    @classmethod
    def of(cls, graph: OpGraph) -> "MemoryColumns":
        """Collect these columns from a graph."""
        position = np.empty(graph.num_ops, dtype=np.int64)
        position[graph.topological_order] = np.arange(graph.num_ops)
        return cls(
            producer=graph.tensor_producer,
            num_bytes=graph.tensor_bytes,
            held_bytes=graph.held_bytes,
            consumer_tensor=graph.consumer_tensor,
            consumers=graph.consumers,
            alias_source=graph.alias_source,
            last_first=np.argsort(-position[graph.tensor_producer], kind="stable"),
        )


class Copies(NamedTuple):
    """All copies of tensors, `[num_tensors + num_transfers]`.

    Copy t is tensor t on its producer's device; copy `num_tensors + r` is made by transfer r.

    num_bytes: size of the copy; 0 for an alias that uses no memory of its own.
    device: the device that holds the copy from `begin_us` to `until_us`.
    next: the next copy of the same tensor, or -1.
    """

    num_bytes: IntArray
    device: IntArray
    begin_us: FloatArray
    until_us: FloatArray
    next: IntArray


@kernel
def held_copies(memory: MemoryColumns, device: IntArray, times: Times) -> Copies:
    """Return all copies of a schedule."""
    num_copies = len(memory.producer) + len(times.tensor)
    copies = Copies(
        np.empty(num_copies, np.int64),
        np.empty(num_copies, np.int64),
        np.empty(num_copies),
        np.empty(num_copies),
        np.full(num_copies, -1, np.int64),
    )
    _hold_outputs(copies, memory, device, times)
    _hold_received(copies, memory, times)
    _hold_for_consumers(copies, memory, device, times)
    _hold_for_aliases(copies, memory)
    return copies


@step
def _hold_outputs(copies: Copies, memory: MemoryColumns, device: IntArray, times: Times) -> None:
    """Add the outputs: each is held on its producer's device, at least while the producer runs."""
    for tensor in range(len(memory.producer)):
        op = memory.producer[tensor]
        copies.num_bytes[tensor], copies.device[tensor] = memory.held_bytes[tensor], device[op]
        copies.begin_us[tensor], copies.until_us[tensor] = times.start_us[op], times.end_us[op]


@step
def _hold_received(copies: Copies, memory: MemoryColumns, times: Times) -> None:
    """Add the received copies; the sender holds its copy until the transfer has ended."""
    following, until_us, num_tensors = copies.next, copies.until_us, len(memory.producer)
    for row in range(len(times.tensor)):
        copy, tensor = num_tensors + row, times.tensor[row]
        copies.num_bytes[copy], copies.device[copy] = memory.num_bytes[tensor], times.dst[row]
        copies.begin_us[copy], until_us[copy] = times.sent_us[row], times.arrived_us[row]
        following[copy], following[tensor] = following[tensor], copy
        until_us[tensor] = max(until_us[tensor], times.arrived_us[row])


@step
def _hold_for_consumers(
    copies: Copies, memory: MemoryColumns, device: IntArray, times: Times
) -> None:
    """Extend copies until the end of the consumers on their device."""
    until_us = copies.until_us
    for entry in range(len(memory.consumers)):
        copy, op = memory.consumer_tensor[entry], memory.consumers[entry]
        while copy >= 0:
            if copies.device[copy] == device[op]:
                until_us[copy] = max(until_us[copy], times.end_us[op])
            copy = copies.next[copy]


@step
def _hold_for_aliases(copies: Copies, memory: MemoryColumns) -> None:
    """Extend copies until the end of their aliases on the device; such an alias has 0 bytes."""
    until_us = copies.until_us
    for tensor in memory.last_first:
        copy = memory.alias_source[tensor]
        while copy >= 0:
            if copies.device[copy] == copies.device[tensor]:
                until_us[copy] = max(until_us[copy], until_us[tensor])
                copies.num_bytes[tensor] = 0
            copy = copies.next[copy]


@kernel
def peak_held_bytes(
    memory: MemoryColumns, device: IntArray, times: Times, resident: IntArray
) -> IntArray:
    """Return the peak memory of each device in bytes, `[num_devices]`; see `memory.peak_bytes`."""
    copies = held_copies(memory, device, times)
    num_bytes, where = copies.num_bytes, copies.device
    held = np.flatnonzero((copies.until_us > copies.begin_us) & (num_bytes > 0))
    # Frees come first, so that the stable sort puts them before allocations of the same instant.
    instants = np.concatenate((copies.until_us[held], copies.begin_us[held]))
    now, peak = resident.copy(), resident.copy()
    for event in np.argsort(instants, kind="mergesort"):
        copy = held[event % len(held)]
        here = where[copy]
        if event < len(held):
            now[here] -= num_bytes[copy]
        else:
            now[here] += num_bytes[copy]
            peak[here] = max(peak[here], now[here])
    return peak


@kernel
def surely_fits(
    memory: MemoryColumns,
    device: IntArray,
    times: Times,
    resident: IntArray,
    capacity: FloatArray,
) -> bool:
    """Return whether an upper bound of the peak of each device fits in its capacity.

    Time is divided into spans, and each copy counts in all spans that it touches. This is several
    times faster than the exact peak, because it needs no sort.
    """
    copies = held_copies(memory, device, times)
    num_bytes, where = copies.num_bytes, copies.device
    begin_us, until_us = copies.begin_us, copies.until_us
    makespan_us = until_us.max() if len(until_us) > 0 else 0.0
    spans_per_us = (SPANS - 1) / makespan_us if makespan_us > 0.0 else 0.0
    change = np.zeros((len(capacity), SPANS + 1), np.int64)
    for copy in range(len(begin_us)):
        change[where[copy], np.int64(begin_us[copy] * spans_per_us)] += num_bytes[copy]
        change[where[copy], np.int64(until_us[copy] * spans_per_us) + 1] -= num_bytes[copy]
    for here in range(len(capacity)):
        held = resident[here]
        for span in range(SPANS):
            held += change[here, span]
            if held > capacity[here]:
                return False
    return True
