"""The devices of the ops of a split graph on a mesh.

1. Whole ops for which a device is wanted are there, with their colocation groups.
2. Other colocation groups with whole variables are dealt in order of decreasing bytes, each to the
   device of its stage that has the fewest bytes so far, those of pieces and copies of variables
   included.
3. A part is on the device of its stage and index, unless it must be with an op that is whole. An op
   of a bucket of gradients is on the device of the part for which it was added.
4. Some tensors have only one possible device, such as feeds. The cut of such a tensor is on the
   device that lets the last part arrive earliest. Usually this is the device of the tensor. Then
   each GPU receives only its part of the batch. The same holds for the cut of a piece that such a
   cut makes.
5. Any other op, such as a sum of parts, is on the device that takes most of its outputs,
   or else on that from which most of its inputs come. If several devices take equally much of an op
   that the plan adds, it is on the one of these from which most of its inputs come, or else on the
   one that sends the outputs of such ops for the shortest time so far. So each device adds an equal
   share of a sum that all of them need (a reduce-scatter). Whole ops in this situation stay
   together, on the first device. An op that adds the parts of one host, or passes a tensor on
   there, stays on this host. One that passes a tensor on in an island is on the device there that
   does so fastest.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from pesto_cli.data.columns import BoolArray, IntArray
from pesto_cli.data.specs import CUTS
from pesto_cli.sharding.added_ops import FORWARDING
from pesto_cli.sharding.problems import Rewritten
from pesto_cli.strategies.meshes import Mesh
from pesto_cli.strategies.near_data import NearData, transfer_us


def devices_of_parts(
    split: Rewritten, mesh: Mesh, stage: IntArray, wanted: IntArray | None = None
) -> IntArray:
    """Return the device of each op, `[num_ops]`.

    Args:
        split: the split problem.
        mesh: the devices of parts.
        stage: the stage of each op, `[num_ops]`.
        wanted: the device that is wanted for each op of the original problem if it stays whole, or
            -1; no entry if there is no such op.
    """
    dealer = _Dealer(split, mesh, stage)
    if wanted is not None:
        dealer.keep_together(wanted)
    return dealer.dealt()


class _Dealer:
    def __init__(self, split: Rewritten, mesh: Mesh, stage: IntArray) -> None:
        self._split, self._mesh, self._stage = split, mesh, stage
        self._problem, self._graph = split.problem, split.problem.graph
        self._group = self._graph.colocation_group
        self._part = np.maximum(split.part, split.for_part)
        self._device = np.full(self._graph.num_groups, -1, dtype=np.int64)
        self._of_host = _devices_of_hosts(
            mesh, split.plan.hosts or split.plan.islands, self._problem.num_devices
        )

    def keep_together(self, wanted: IntArray) -> None:
        """Put whole ops on the devices that are wanted for them, where these are allowed."""
        origin = self._split.origin
        device = np.where(self._split.part < 0, wanted[origin], -1)
        for op in np.flatnonzero((origin >= 0) & (device >= 0)).tolist():
            if self._problem.group_allowed[self._group[op], device[op]]:
                self._device[self._group[op]] = device[op]

    def dealt(self) -> IntArray:
        """Return the device of each op."""
        self._deal_variables()
        self._place_parts()
        self._place_cuts()
        near_data = NearData(self._split, self._device, self._stage, self._of_host)
        return near_data.placed()[self._group]

    def _place_parts(self) -> None:
        """Place each colocation group that has parts on the device of its first part."""
        ops = np.flatnonzero((self._part >= 0) & (self._device[self._group] < 0))
        groups, first = np.unique(self._group[ops], return_index=True)
        ops = ops[first]
        wanted = self._mesh.devices(self._stage[ops], self._part[ops])
        allowed = self._problem.allowed[ops]
        time_us = np.where(allowed, self._problem.duration_us[ops], np.inf)
        is_allowed = np.take_along_axis(allowed, wanted[:, None], axis=1)[:, 0]
        self._device[groups] = np.where(is_allowed, wanted, np.argmin(time_us, axis=1))

    def _deal_variables(self) -> None:
        num_bytes = np.zeros(self._graph.num_groups)
        np.add.at(num_bytes, self._group, self._graph.resident_bytes)
        held = dict.fromkeys(chain.from_iterable(self._mesh.stages), 0.0)
        stage = np.zeros(self._graph.num_groups, dtype=np.int64)
        stage[self._group] = self._stage  # the last assignment wins
        pieces = np.flatnonzero((self._split.part >= 0) & (self._graph.resident_bytes > 0))
        groups, first = np.unique(self._group[pieces], return_index=True)
        devices = self._mesh.devices(self._stage[pieces[first]], self._part[pieces[first]])
        for holder, of_group in zip(devices.tolist(), num_bytes[groups].tolist(), strict=True):
            held[holder] += of_group
        num_bytes[groups] = 0.0
        is_dealt, whole = self._device >= 0, np.flatnonzero(num_bytes)
        for number in whole[np.lexsort((-num_bytes[whole], ~is_dealt[whole]))].tolist():
            if not is_dealt[number]:
                allowed = self._problem.group_allowed[number]
                able = [device for device in self._mesh.stages[stage[number]] if allowed[device]]
                other = int(np.argmax(allowed))
                self._device[number] = min(able, key=held.__getitem__) if able else other
            if self._device[number] in held:
                held[self._device[number]] += num_bytes[number]

    def _place_cuts(self) -> None:
        """Place each cut of a tensor whose device is known; see point 4."""
        graph = self._graph
        is_added = self._split.origin < 0
        for op in np.flatnonzero(is_added & (self._device[self._group] < 0)).tolist():
            if graph.types[op] in CUTS and graph.inputs is not None:
                tensor = int(graph.inputs[op][CUTS[graph.types[op]]])
                holder = self._holder(tensor)
                devices = np.flatnonzero(self._problem.allowed[holder])
                if is_added[holder] and self._device[self._group[holder]] >= 0:
                    devices = self._device[self._group[[holder]]]  # a cut of a cut
                if len(devices) == 1:
                    self._device[self._group[op]] = self._device_of_cut(op, tensor, devices[0])

    def _holder(self, tensor: int) -> int:
        """Return the op of the given graph that has the data of a tensor, also through a view."""
        graph = self._graph
        op = int(graph.tensor_producer[tensor])
        while self._split.origin[op] < 0 and graph.types[op] in FORWARDING:
            op = int(graph.predecessors[op][0])
        return op

    def _device_of_cut(self, op: int, tensor: int, holder: int) -> int:
        """Return the device on which a cut lets the last part arrive earliest.

        holder: the device of the tensor that is cut.
        """
        able = np.flatnonzero(self._problem.allowed[op]).tolist()

        def arrival_us(device: int) -> float:
            parts = self._graph.tensors_of(op)
            last_us = max((self._sent_us(part, device) for part in parts), default=0.0)
            sent_us = transfer_us(self._problem, tensor, holder, device)
            return sent_us + float(self._problem.duration_us[op, device]) + last_us

        return int(min(able, key=lambda device: (arrival_us(device), device != holder)))

    def _sent_us(self, tensor: int, device: int) -> float:
        """Return the time until all placed consumers of a tensor on a device have it."""
        targets = self._device[self._group[self._graph.consumers_of(tensor)]]
        placed = set(targets[targets >= 0].tolist())
        sent_us = (transfer_us(self._problem, tensor, device, target) for target in placed)
        return max(sent_us, default=0.0)


def _devices_of_hosts(mesh: Mesh, hosts: Sequence[int], num_devices: int) -> BoolArray:
    """Return whether a device has parts of a host, `[num_stages, num_hosts, num_devices]`.

    hosts: the host of each part.
    """
    found = np.zeros((len(mesh.stages), 1 + max(hosts, default=-1), num_devices), dtype=np.bool_)
    of_part = np.array(hosts, dtype=np.int64)
    for stage in range(len(mesh.stages)):
        found[stage, of_part, mesh.devices(stage, np.arange(len(hosts)))] = True
    return found
