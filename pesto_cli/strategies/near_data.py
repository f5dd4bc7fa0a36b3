"""The devices of ops that are best where their data is; see point 5 of `part_devices`."""

from collections.abc import Sequence

import numpy as np

from pesto_cli.bounds.canonical import rounded
from pesto_cli.data.columns import BoolArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.sharding.problems import Rewritten


def transfer_us(problem: Problem, tensor: int, source: int, target: int) -> float:
    """Return the time in which a tensor is sent from one device to another, in us."""
    if source == target:
        return 0.0
    num_bytes = float(problem.graph.tensor_bytes[tensor])
    return float(problem.machine.transfer_us(num_bytes, source, target))


class NearData:
    """Places ops on the devices that take most of their outputs, or give most of their inputs.

    split: the split problem.
    device_of_group: the device of each colocation group, or -1.
    stage: of each op, `[num_ops]`.
    of_host: whether a device has parts of a host, `[num_stages, num_hosts, num_devices]`.
    """

    def __init__(
        self, split: Rewritten, device_of_group: IntArray, stage: IntArray, of_host: BoolArray
    ) -> None:
        graph = split.problem.graph
        self._split, self._problem, self._graph = split, split.problem, graph
        self._of_host = of_host
        self._order = graph.topological_order
        self._is_free = device_of_group[graph.colocation_group] < 0
        # Single elements are read several times faster from lists.
        self._device: list[int] = device_of_group.tolist()
        self._group: list[int] = graph.colocation_group.tolist()
        self._host: list[int] = split.host.tolist()
        self._stage: list[int] = stage.tolist()
        self._bytes: list[int] = graph.tensor_bytes.tolist()
        self._producer: list[int] = graph.tensor_producer.tolist()
        self._consumers: list[int] = graph.consumers.tolist()
        self._first_taker: list[int] = graph.consumer_offsets.tolist()
        self._everywhere = [*range(self._problem.num_devices)]
        self._homes: dict[tuple[int, int], list[int]] = {}
        self._devices: dict[bytes, list[int]] = {}
        self._known_us: dict[tuple[int, int, int], float] = {}
        self._shared_us = [0.0] * self._problem.num_devices

    def placed(self) -> IntArray:
        """Return the device of each colocation group."""
        origin, part = self._split.origin, self._split.part
        is_added = (origin < 0) | np.isin(origin, origin[part >= 0])
        free = self._order[self._is_free[self._order]].tolist()
        for op in reversed(free):
            if self._device[self._group[op]] < 0:
                pulls = self._pulls_of_consumers(op)
                if any(pulls[device] for device in self._home(op)):
                    self._place(op, pulls, is_shared=bool(is_added[op]))
        for op in free:
            if self._device[self._group[op]] < 0:
                self._place(op, self._pulls_of_inputs(op))
        return np.array(self._device, dtype=np.int64)

    def _place(self, op: int, pulls: Sequence[int], *, is_shared: bool = False) -> None:
        """Put an op on the allowed device with the largest pull; pulls: `[num_devices]`.

        is_shared: whether devices with an equal pull share such ops, or the first one gets them.
        """
        allowed, home = self._allowed(op), self._home(op)
        able = [device for device in allowed if device in home] or allowed
        best = _largest(able, pulls)
        is_tie = is_shared and len(best) > 1
        self._device[self._group[op]] = self._next_of(best, op) if is_tie else best[0]

    def _next_of(self, devices: Sequence[int], op: int) -> int:
        """Return the device of an op of which several devices take equally much."""
        if self._split.plan.islands and self._host[op] >= 0:
            sent_us = rounded(np.array([self._through_us(op, device) for device in devices]))
            devices = np.array(devices)[sent_us == sent_us.min()].tolist()
        devices = _largest(devices, self._pulls_of_inputs(op))
        if len(devices) == 1:
            return devices[0]
        device = min(devices, key=self._shared_us.__getitem__)
        for tensor in self._graph.tensors_of(op):
            for target in {self._device_of(taker) for taker in self._takers(tensor)}:
                if target >= 0:
                    self._shared_us[device] += self._sent_us(tensor, device, target)
        return device

    def _through_us(self, op: int, device: int) -> float:
        """Return the time of all transfers between an op on a device and placed ops."""
        pairs = [(each, self._device_of(self._producer[each]), device) for each in self._taken(op)]
        for tensor in self._graph.tensors_of(op):
            targets = {self._device_of(taker) for taker in self._takers(tensor)}
            pairs += [(tensor, device, target) for target in targets]
        return sum(self._sent_us(*pair) for pair in pairs if min(pair[1:]) >= 0)

    def _sent_us(self, tensor: int, source: int, target: int) -> float:
        """Return `transfer_us`, which is computed once for all tensors of equal size."""
        key = self._bytes[tensor], source, target
        if key not in self._known_us:
            self._known_us[key] = transfer_us(self._problem, tensor, source, target)
        return self._known_us[key]

    def _allowed(self, op: int) -> list[int]:
        """Return the devices that are allowed for an op."""
        is_allowed = self._problem.allowed[op]
        key = is_allowed.tobytes()
        if key not in self._devices:
            self._devices[key] = np.flatnonzero(is_allowed).tolist()
        return self._devices[key]

    def _home(self, op: int) -> list[int]:
        """Return the devices with parts of the host for which an op was added; else all devices."""
        host = self._host[op]
        if host < 0:
            return self._everywhere
        key = self._stage[op], host
        if key not in self._homes:
            self._homes[key] = np.flatnonzero(self._of_host[key]).tolist()
        return self._homes[key]

    def _pulls_of_consumers(self, op: int) -> list[int]:
        """Return the bytes that placed ops take from an op on each device."""
        pulls, device_of, group = [0] * len(self._everywhere), self._device, self._group
        for tensor in self._graph.tensors_of(op):
            pull = 1 + self._bytes[tensor]
            for taker in self._takers(tensor):
                device = device_of[group[taker]]
                if device >= 0:
                    pulls[device] += pull
        return pulls

    def _pulls_of_inputs(self, op: int) -> list[int]:
        """Return the bytes that an op takes from placed ops on each device."""
        pulls = [0] * len(self._everywhere)
        for tensor in self._taken(op):
            device = self._device_of(self._producer[tensor])
            if device >= 0:
                pulls[device] += 1 + self._bytes[tensor]
        return pulls

    def _device_of(self, op: int) -> int:
        return self._device[self._group[op]]

    def _taken(self, op: int) -> list[int]:
        inputs = self._graph.inputs
        return [] if inputs is None else [each for each in inputs[op].tolist() if each >= 0]

    def _takers(self, tensor: int) -> list[int]:
        return self._consumers[self._first_taker[tensor] : self._first_taker[tensor + 1]]


def _largest(devices: Sequence[int], pulls: Sequence[int]) -> list[int]:
    """Return the devices with the largest pull."""
    largest = max(map(pulls.__getitem__, devices))
    return [device for device in devices if pulls[device] == largest]
