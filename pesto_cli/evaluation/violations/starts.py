"""The rules on starts: an op starts as soon as its device is free and its inputs have arrived."""

from collections.abc import Iterator

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.evaluation.violations.observed import Finding, Observed


def device_overlap(seen: Observed) -> Iterator[Finding]:
    """A device runs one op at a time."""
    for device, ops in seen.ops.items():
        before, after = np.array(ops[:-1], dtype=np.int64), np.array(ops[1:], dtype=np.int64)
        overlap = seen.later(seen.schedule.end_us[before], seen.schedule.start_us[after])
        for pair in np.flatnonzero(overlap).tolist():
            names = f"{seen.name(ops[pair])} and {seen.name(ops[pair + 1])}"
            yield "overlap", f"ops {names} overlap on device {device}"


def precedence(seen: Observed) -> Iterator[Finding]:
    """An op starts when its device has run the ops of lower rank and its inputs have arrived.

    A receiver delays a tensor only while it computes, and so no consumer there could start earlier.
    For starts in a given order, the arrival of the transfer counts.
    """
    start_us, end_us = seen.schedule.start_us, seen.schedule.end_us
    could_us = np.zeros(len(start_us))
    for ops in seen.ops.values():
        could_us[ops[1:]] = end_us[ops[:-1]]
    waits = (np.concatenate(rows) for rows in zip(*_waits(seen), strict=True))
    before, after, there_us, latest_us = waits
    np.maximum.at(could_us, after, latest_us)
    for row in np.flatnonzero(seen.later(there_us, start_us[after])).tolist():
        yield (
            "precedence",
            f"op {seen.name(after[row])} starts at {float(start_us[after[row]])} us, before its "
            f"input from {seen.name(before[row])} arrives at {float(there_us[row])} us",
        )
    for op in np.flatnonzero(seen.later(start_us, could_us)).tolist():
        message = f"op {seen.name(op)} starts at {seen.start_us[op]} us, not at {could_us[op]}"
        yield "idle", message


def feed(seen: Observed) -> Iterator[Finding]:
    """A feed without predecessors starts at time 0."""
    for op in np.flatnonzero(seen.problem.is_given).tolist():
        if seen.start_us[op] > 0:
            yield "feed", f"feed {seen.name(op)} starts at {seen.start_us[op]} us, not at 0"


def _waits(seen: Observed) -> Iterator[tuple[IntArray, IntArray, FloatArray, FloatArray]]:
    """Yield (predecessor, op, earliest and latest arrival) of control edges, and of tensors."""
    graph, device, end_us = seen.problem.graph, seen.schedule.device, seen.schedule.end_us
    num_devices = seen.problem.num_devices
    signalled_us = np.tile(end_us[:, None], (2, 1, num_devices))
    for signal in seen.signals:
        sent_us = np.array(signal.sent_us)
        signalled_us[:, signal.op, signal.dst] = sent_us + seen.problem.machine.signal_us
    before, after = graph.control_edges.reshape(-1, 2).T
    yield before, after, *signalled_us[:, before, device[after]]
    tensor, consumer = graph.consumer_tensor, graph.consumers
    producer = graph.tensor_producer[tensor]
    arrived_us = np.tile(end_us[graph.tensor_producer, None], (1, num_devices))
    for each in seen.transfers:
        arrived_us[each.tensor, each.dst] = each.arrived_us
    is_signal = graph.consumer_on_host & (device[producer] != device[consumer])
    by_signal_us = signalled_us[:, producer, device[consumer]]
    yield (
        producer,
        consumer,
        *np.where(is_signal, by_signal_us, arrived_us[tensor, device[consumer]]),
    )
