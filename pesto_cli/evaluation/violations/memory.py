"""The rule on memory: the peak of each device."""

from collections.abc import Iterator

import numpy as np

from pesto_cli.evaluation.violations.observed import Finding, Observed


def memory(seen: Observed) -> Iterator[Finding]:
    """A schedule's peaks are correct, and none exceeds the memory that may be used."""
    problem, stated = seen.problem, seen.schedule.peak_bytes
    for device, (peak, capacity) in enumerate(
        zip(_peak_bytes(seen), problem.capacity_bytes, strict=True)
    ):
        name = problem.machine.devices[device].name
        if peak != stated[device]:
            yield "peak", f"peak on {name} is {peak} bytes, not {stated[device]}"
        if peak > capacity:
            yield "memory", f"peak on {name} is {peak} bytes, {int(capacity)} may be used"


def _peak_bytes(seen: Observed) -> list[int]:
    """Return the peak memory of each device in bytes: variables, outputs and copies."""
    graph, num_devices = seen.problem.graph, seen.problem.num_devices
    held = _held(seen)
    tensor, where = np.array(list(held), dtype=np.int64).reshape(-1, 2).T
    start_us, end_us = np.array(list(held.values()), dtype=np.float64).reshape(-1, 2).T
    producer, device = graph.tensor_producer[tensor], np.array(seen.device, dtype=np.int64)
    is_resident = (graph.alias_of[producer] == producer) & (where == device[producer])
    size = np.where(is_resident | (end_us <= start_us), 0, graph.tensor_bytes[tensor])
    peaks = []
    for here in range(num_devices):
        base, on = int(graph.resident_bytes[device == here].sum()), where == here
        change = np.concatenate((size[on], -size[on]))
        # At one instant, frees (negative changes) come first.
        order = np.lexsort((change, np.concatenate((start_us[on], end_us[on]))))
        peaks.append(base + int(np.cumsum(change[order]).max(initial=0)))
    return peaks


def _held(seen: Observed) -> dict[tuple[int, int], list[float]]:
    """Return (tensor, device) -> [start, end] of holding it in us.

    An alias has no entry, but extends the entry of the tensor that it aliases on its device.
    """
    graph, device = seen.problem.graph, seen.device
    producers = graph.tensor_producer.tolist()
    held = {
        (tensor, device[producer]): [seen.start_us[producer], seen.end_us[producer]]
        for tensor, producer in enumerate(producers)
    }
    for each in seen.transfers:
        held[each.tensor, each.dst] = [each.sent_us, each.arrived_us]
        home = held[each.tensor, each.src]
        home[1] = max(home[1], each.arrived_us)
    for tensor, consumer in zip(
        graph.consumer_tensor.tolist(), graph.consumers.tolist(), strict=True
    ):
        copy = held.get((tensor, device[consumer]))
        if copy is not None:
            copy[1] = max(copy[1], seen.end_us[consumer])
    position = np.argsort(graph.topological_order)[graph.tensor_producer]
    last_first = np.argsort(-position, kind="stable")
    for tensor in last_first[graph.alias_source[last_first] >= 0].tolist():
        here = device[producers[tensor]]
        root = held.get((int(graph.alias_source[tensor]), here))
        if root is not None:
            root[1] = max(root[1], held.pop((tensor, here))[1])
    return held
