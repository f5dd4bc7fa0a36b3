"""The rule on memory: the peak of each device."""

from collections.abc import Iterator

import numpy as np

from pesto_cli.data.graph import IntArray
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
    graph, device = seen.problem.graph, seen.schedule.device
    held = _Held(seen)
    producer = graph.tensor_producer[held.tensor]
    is_resident = (graph.alias_of[producer] == producer) & (held.device == device[producer])
    is_counted = held.is_own & ~is_resident & (held.end_us > held.start_us)
    size = np.where(is_counted, graph.tensor_bytes[held.tensor], 0)
    peaks = []
    for here in range(seen.problem.num_devices):
        base, on = int(graph.resident_bytes[device == here].sum()), held.device == here
        change = np.concatenate((size[on], -size[on]))
        # At one instant, frees (negative changes) come first.
        order = np.lexsort((change, np.concatenate((held.start_us[on], held.end_us[on]))))
        peaks.append(base + int(np.cumsum(change[order]).max(initial=0)))
    return peaks


class _Held:
    """Tensors and copies that devices hold: first each tensor where it is produced, then copies.

    tensor, device, start_us, end_us: by row.
    is_own: whether a row has memory of its own. An alias has none if the tensor that it aliases is
        on its device, and is held at least as long as the alias.
    """

    def __init__(self, seen: Observed) -> None:
        graph, device = seen.problem.graph, seen.schedule.device
        start_us, end_us = seen.schedule.start_us, seen.schedule.end_us
        num_tensors, producer = graph.num_tensors, graph.tensor_producer
        columns = [
            (each.tensor, each.dst, each.sent_us, each.arrived_us) for each in seen.transfers
        ]
        tensor, dst, sent_us, arrived_us = np.array(columns, dtype=np.float64).reshape(-1, 4).T
        copied = tensor.astype(np.int64)
        self.tensor = np.concatenate((np.arange(num_tensors), copied))
        self.device = np.concatenate((device[producer], dst.astype(np.int64)))
        self.start_us = np.concatenate((start_us[producer], sent_us))
        self.end_us = np.concatenate((end_us[producer], arrived_us))
        np.maximum.at(self.end_us, copied, arrived_us)
        row_of = np.full((num_tensors, seen.problem.num_devices), -1, dtype=np.int64)
        row_of[self.tensor, self.device] = np.arange(len(self.tensor))
        self.is_own = row_of[self.tensor, self.device] == np.arange(len(self.tensor))
        row = row_of[graph.consumer_tensor, device[graph.consumers]]
        is_held = row >= 0
        np.maximum.at(self.end_us, row[is_held], end_us[graph.consumers[is_held]])
        self._join_aliases(seen, row_of)

    def _join_aliases(self, seen: Observed, row_of: IntArray) -> None:
        """Hold a tensor as long as its aliases on its device, the aliases of aliases first."""
        graph = seen.problem.graph
        position = np.argsort(graph.topological_order)[graph.tensor_producer]
        last_first = np.argsort(-position, kind="stable")
        for tensor in last_first[graph.alias_source[last_first] >= 0].tolist():
            root = row_of[graph.alias_source[tensor], self.device[tensor]]
            if root >= 0:
                self.end_us[root] = max(self.end_us[root], self.end_us[tensor])
                self.is_own[tensor] = False
