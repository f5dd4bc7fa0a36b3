"""The forms in which a step is split, in the order in which they are tried.

It depends on the machine: on its devices, on the links between its hosts, and on how long these
take to send the gradients.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from pesto_cli.data.labels import Phase
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.data_parallel import DataParallel, VariableLayout, hosts_of
from pesto_cli.strategies.devices import accelerators, differ, hosts_of_devices, islands
from pesto_cli.strategies.intra_op import (
    ALPA,
    DATA_EXPOSED,
    HIDDEN,
    MOSTLY_HIDDEN,
    IntraOp,
)
from pesto_cli.strategies.meshes import Mesh, meshes, most_parts
from pesto_cli.strategies.os_dpos import OsDpos
from pesto_cli.strategies.split_search.beside_whole import BesideWhole
from pesto_cli.strategies.split_search.copied import copied_placements
from pesto_cli.strategies.split_search.ways import AsStrategy, OnMeshes, Way
from pesto_cli.strategies.split_search.whole import Placer
from pesto_cli.strategies.tensor_parallel import TensorParallel

# Sizes of buckets of gradients: PyTorch's default (Li et al., VLDB '20), and larger ones, which
# take fewer transfers where these have a high latency.
BUCKETS_BYTES = (25 * 2**20, 100 * 2**20)
# Number of plans that `os-dpos` tries, about half of them from each of its first graphs.
OS_DPOS_PLANS = 10
# See `BesideWhole.margin`: with it, few ops are split.
FEW_MARGIN = 1.5


def every_way(problem: Problem, placer: Placer | None = None) -> Iterator[Way]:
    """Yield the ways to split a step over two accelerators or more.

    placer: places the ops of one part; without one, no way has parts on several devices each.
    """
    devices = accelerators(problem)
    if len(devices) < 2:
        return
    forms = _Forms.of(problem)
    first = forms.first(problem)
    copied = () if placer is None else forms.copied(problem, placer)
    yield from dict.fromkeys((*first[:1], *copied, *first[1:], *forms.every()))
    yield AsStrategy(TensorParallel())
    yield AsStrategy(OsDpos(), OS_DPOS_PLANS)
    for layout in (VariableLayout.SPLIT, VariableLayout.MIRRORED):
        yield AsStrategy(DataParallel(variables=layout, by_host=forms.several_hosts))


def beside_whole(whole: Solution) -> Iterator[Way]:
    """Yield two ways to split a part of the whole ops: the first splits more ops."""
    yield BesideWhole(whole, MOSTLY_HIDDEN)
    yield few_beside_whole(whole)


def few_beside_whole(whole: Solution) -> BesideWhole:
    """Return the way that splits only the few ops which gain most."""
    return BesideWhole(whole, HIDDEN, FEW_MARGIN)


@dataclass(frozen=True)
class _Forms:
    """Ways of each form; those that are most often the best come first.

    unequal: whether some devices are faster than others.
    several_hosts: whether the devices are on several hosts.
    flat, grouped: see `_ways_on_meshes`. proportional: parts in proportion to the speeds of their
    devices, which a mesh does not give; none if all devices are equal. buckets: mirrored variables.
    """

    unequal: bool
    several_hosts: bool
    flat: Sequence[OnMeshes]
    grouped: Sequence[OnMeshes]
    proportional: Sequence[Way]
    buckets: Sequence[Way]
    intra_op: Sequence[Way]

    @classmethod
    def of(cls, problem: Problem) -> "_Forms":
        """Return the ways for a problem."""
        devices, hosts = accelerators(problem), hosts_of_devices(problem)
        unequal = differ(problem, devices)
        several_hosts = len({hosts[each] for each in devices}) > 1
        flat, grouped = _ways_on_meshes(problem)
        mirrored = DataParallel(
            proportional=unequal, by_host=several_hosts, variables=VariableLayout.MIRRORED
        )
        hidden = IntraOp(HIDDEN, proportional=unequal)
        if several_hosts:  # transfers between them take so long that little of their time is hidden
            programs = [replace(hidden, exposed=ALPA), hidden]
        else:
            programs = [hidden, replace(hidden, concurrency=math.sqrt(len(devices)))]
            if islands(problem):
                programs.insert(0, replace(hidden, relays=True))
        programs.append(replace(hidden, exposed=DATA_EXPOSED))
        return cls(
            unequal,
            several_hosts,
            flat,
            grouped,
            proportional=[
                AsStrategy(DataParallel(proportional=True, by_host=each))
                for each in (several_hosts, False)
                if unequal
            ],
            buckets=[AsStrategy(replace(mirrored, bucket_bytes=each)) for each in BUCKETS_BYTES],
            intra_op=[AsStrategy(each) for each in programs],
        )

    def copied(self, problem: Problem, placer: Placer) -> tuple[Way, ...]:
        """Return the ways with copies of a placement; see `CopiedPlacement`."""
        bucket_bytes = BUCKETS_BYTES[0] if self.several_hosts else 0
        return tuple(copied_placements(problem, placer, bucket_bytes))

    def every(self) -> tuple[Way, ...]:
        """Return all other ways."""
        return *self.buckets, *self.flat, *self.intra_op, *self.grouped, *self.proportional

    def first(self, problem: Problem) -> tuple[Way, ...]:
        """Return the ways to try first: usually the best ones for this kind of machine."""
        if not self.several_hosts:
            if self.unequal:
                return *self.proportional, *self.buckets
            return *self.flat[:1], *self.intra_op[:3]
        if not gradients_take_longer_than_ops(problem):
            # Then data parallelism can be fast. Without parts in proportion, it is also on a mesh.
            on_one = [way for way in self.grouped if way.meshes[0].num_micro_batches == 1][:1]
            return (
                *self.buckets[:1],
                *self.proportional[:1],
                *on_one,
                *self.intra_op[:1],
                *self.proportional[1:],
                *self.flat[:2],
            )
        # Parts of ops send more bytes between hosts than stages of layers do.
        if self.unequal:
            return *self.flat[:2], *self.grouped[:1], *self.proportional[:1]
        num_here = _num_on_first_host(problem)
        even = [way for way in self.flat if _fits_hosts(way.num_parts, num_here)]
        by_parts = sorted(even, key=lambda way: way.num_parts)
        return *by_parts, *self.buckets[:1], *self.intra_op[:1]


def _ways_on_meshes(problem: Problem) -> tuple[list[OnMeshes], list[OnMeshes]]:
    """Return two lists of ways with parts of the batch on meshes: with flat, and with grouped sums.

    Grouped sums are added first on each host, or over the micro-batches of each device. In both
    lists, the ways that are most often the best come first.
    """
    devices, num_here = accelerators(problem), _num_on_first_host(problem)
    flat = defaultdict[int, list[Mesh]](list)
    grouped = defaultdict[tuple[int, ...], list[Mesh]](list)
    for mesh in meshes(problem, most_parts(problem)):
        flat[mesh.num_parts].append(mesh)
        hosts = hosts_of(problem, mesh.stages[0])
        if mesh.num_micro_batches > 1:
            grouped[tuple(part % mesh.width for part in range(mesh.num_parts))].append(mesh)
        elif len(mesh.stages) == 1 and len(set(hosts)) > 1:
            grouped[hosts].append(mesh)

    def distance(way: OnMeshes) -> tuple[bool, float, bool, int]:
        num_parts = way.num_parts
        if num_here in (1, len(devices)):
            return False, abs(num_parts - len(devices)), False, 0
        # Parts of one op exchange most data, so they should be on one host. Twice as many parts as
        # it has devices are two micro-batches, with which stages on several hosts can overlap.
        doublings = math.log2(num_parts / (2 * num_here))
        is_uneven = not _fits_hosts(num_parts, num_here)
        return is_uneven, abs(doublings), num_parts > len(devices), -num_parts

    return (
        sorted((OnMeshes(tuple(found)) for found in flat.values()), key=distance),
        sorted((OnMeshes(tuple(found), hosts) for hosts, found in grouped.items()), key=distance),
    )


def _num_on_first_host(problem: Problem) -> int:
    """Return the number of accelerators of the host of the first one."""
    devices, host = accelerators(problem), hosts_of_devices(problem)
    return [host[each] for each in devices].count(host[devices[0]])


def _fits_hosts(num_parts: int, num_here: int) -> bool:
    """Whether the parts of an op divide the accelerators of a host evenly, or fill some hosts."""
    return math.log2(num_parts / num_here).is_integer()


def gradients_take_longer_than_ops(problem: Problem) -> bool:
    """Whether a network card takes longer to send all gradients than the devices to run all ops.

    Then data parallelism over hosts cannot be fast. Gradients are the tensors that the update takes
    from the backward pass. A host sends about twice their bytes in an all-reduce.
    """
    graph, machine, hosts = problem.graph, problem.machine, hosts_of_devices(problem)
    devices, phase = accelerators(problem), graph.labels.phase
    taken = graph.consumer_tensor[phase[graph.consumers] == Phase.UPDATE]
    gradients = np.unique(taken[phase[graph.tensor_producer[taken]] == Phase.BACKWARD])
    num_bytes = 2 * int(graph.tensor_bytes[gradients].sum())
    between = [pair for pair in permutations(devices, 2) if hosts[pair[0]] != hosts[pair[1]]]
    sent_us = max(map(float, machine.transfers_us(num_bytes, between)), default=0.0)
    return sent_us > float(problem.min_duration_us.sum()) / len(devices)
