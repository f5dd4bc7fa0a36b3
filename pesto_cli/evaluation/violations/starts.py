"""The rules on starts: an op starts as soon as its device is free and its inputs have arrived."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pesto_cli.evaluation.violations.observed import Finding, Observed

# (predecessor, op, arrival at the op's device in us)
Wait = tuple[int, int, float]


def device_overlap(seen: Observed) -> Iterator[Finding]:
    """A device runs one op at a time."""
    for device, ops in seen.ops.items():
        for before, after in pairwise(ops):
            if seen.later(seen.end_us[before], seen.start_us[after]):
                names = f"{seen.name(before)} and {seen.name(after)}"
                yield "overlap", f"ops {names} overlap on device {device}"


def precedence(seen: Observed) -> Iterator[Finding]:
    """An op starts when its device has run the ops of lower rank and its inputs have arrived.

    A receiver delays a tensor only while it computes, and so no consumer there could start earlier.
    For starts in a given order, the arrival of the transfer counts.
    """
    could_us = [0.0] * len(seen.device)
    for ops in seen.ops.values():
        for before, after in pairwise(ops):
            could_us[after] = seen.end_us[before]
    for before, after, there_us in _waits(seen):
        could_us[after] = max(could_us[after], there_us)
        if seen.later(there_us, seen.start_us[after]):
            yield (
                "precedence",
                f"op {seen.name(after)} starts at {seen.start_us[after]} us, before its input "
                f"from {seen.name(before)} arrives at {there_us} us",
            )
    for op, start_us in enumerate(seen.start_us):
        if seen.later(start_us, could_us[op]):
            yield "idle", f"op {seen.name(op)} starts at {start_us} us, not at {could_us[op]}"


def feed(seen: Observed) -> Iterator[Finding]:
    """A feed without predecessors starts at time 0."""
    for op in np.flatnonzero(seen.problem.is_given).tolist():
        if seen.start_us[op] > 0:
            yield "feed", f"feed {seen.name(op)} starts at {seen.start_us[op]} us, not at 0"


def _waits(seen: Observed) -> Iterator[Wait]:
    """Yield all waits of ops: for control edges, data in host memory, and other data."""
    graph, signal_us = seen.problem.graph, seen.problem.machine.signal_us
    arrived_us = {(each.tensor, each.dst): each.arrived_us for each in seen.transfers}
    for before, after in graph.control_edges.tolist():
        across = seen.device[before] != seen.device[after]
        yield before, after, seen.end_us[before] + (signal_us if across else 0.0)
    producers = graph.tensor_producer.tolist()
    for tensor, consumer, on_host in zip(
        graph.consumer_tensor.tolist(),
        graph.consumers.tolist(),
        graph.consumer_on_host.tolist(),
        strict=True,
    ):
        producer, there_us = producers[tensor], seen.end_us[producers[tensor]]
        if seen.device[producer] != seen.device[consumer]:
            by_link_us = arrived_us.get((tensor, seen.device[consumer]), there_us)
            there_us = there_us + signal_us if on_host else by_link_us
        yield producer, consumer, there_us
