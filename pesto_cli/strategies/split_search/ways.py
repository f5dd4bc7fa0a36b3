"""Ways to split the ops of a step: the starts of the search that splits ops.

The ways are pure forms: parts of the batch on meshes (data parallelism, pipelines, stages of layers
with parts within), variables that are split or mirrored, split weights (tensor parallelism), and
single ops of the critical path that are split (FastT). Meshes with equally many parts share a plan,
so the step is split once for all of them.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations
from typing import ClassVar, Protocol

import numpy as np

from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.labels import Phase
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.data.split_start import SplitStart
from pesto_cli.evaluation.simulator import replay
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import (
    DataParallel,
    VariableLayout,
    batch_plan,
    dealt,
    hosts_of,
)
from pesto_cli.strategies.devices import (
    accelerators,
    differ,
    hosts_of_devices,
    islands,
    on_faster_hosts,
)
from pesto_cli.strategies.intra_op import ALPA, DATA_EXPOSED, HIDDEN, IntraOp
from pesto_cli.strategies.meshes import Mesh, meshes, most_parts
from pesto_cli.strategies.os_dpos import OsDpos
from pesto_cli.strategies.tensor_parallel import TensorParallel

# Estimated times for each op: to choose a plan, to split the op into a part, and to schedule a part
# on a mesh. The number of ways that are tried follows from them, so it is the same in each run.
PLAN_US, PART_US, MESH_US = 90.0, 25.0, 4.0
# A strategy gets at least this share of the time limit, since estimates are too short for graphs of
# few ops.
LEAST_SHARE = 0.02
# Sizes of buckets of gradients: PyTorch's default (Li et al., VLDB '20), and larger ones, which
# take fewer transfers where these have a high latency.
BUCKETS_BYTES = (25 * 2**20, 100 * 2**20)
# Number of plans that `os-dpos` tries, about half of them from each of its first graphs.
OS_DPOS_PLANS = 10


def parts_us(num_parts: int, num_meshes: int = 1) -> float:
    """Return the estimated time to split an op into parts and to schedule these, in us."""
    return num_parts * (PART_US + MESH_US * num_meshes)


class Way(Protocol):
    """A way to split ops and to schedule them."""

    @property
    def name(self) -> str:
        """The name of the way in notes."""

    def us_per_op(self, problem: Problem) -> float:
        """Return the estimated time for each op of the problem, in us."""

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        """Return a solution with split ops, and its source, as progress reports name it.

        Raises:
            BadInputError: the step cannot be split so.
        """


@dataclass(frozen=True, eq=False)
class AsBefore:
    """The plan and the placement of the warm start."""

    name: ClassVar[str] = "split warm start"
    start: SplitStart

    def us_per_op(self, problem: Problem) -> float:
        """Return 0: a warm start is always used."""
        return 0.0

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        """Split and replay."""
        split = rewritten(problem, self.start.plan)
        schedule = replay(split.problem, self.start.placement)
        solution = split.solution(problem, schedule)
        return self.name, replace(solution, lower_bound_us=all_plans_bound_us(problem))


@dataclass(frozen=True)
class OnMeshes:
    """Parts of the batch on the best of some meshes, which have equally many parts.

    hosts: see `Plan`; here also one for each device of a stage, if it has several micro-batches.
    """

    name: ClassVar[str] = "split batch"
    meshes: Sequence[Mesh]
    hosts: tuple[int, ...] = ()

    @property
    def num_parts(self) -> int:
        """Number of parts of each op."""
        return self.meshes[0].num_parts

    def us_per_op(self, problem: Problem) -> float:
        """Return the estimated time for each op of the problem, in us."""
        return PLAN_US + parts_us(self.num_parts, len(self.meshes))

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        """Split once, and schedule the parts on each mesh."""
        first = self.meshes[0]
        devices = [first.device(0, part) for part in range(self.num_parts)]
        plan = replace(batch_plan(problem, devices), hosts=self.hosts)
        split = rewritten(problem, plan)
        return min(
            ((str(mesh), dealt(problem, split, mesh)) for mesh in self.meshes),
            key=lambda built: built[1].objective,
        )


@dataclass(frozen=True)
class AsStrategy:
    """The solution of another strategy; num_plans: how many plans there is time for."""

    strategy: DataParallel | IntraOp | TensorParallel | OsDpos
    num_plans: int = 1

    @property
    def name(self) -> str:
        """The name of the strategy."""
        return self.strategy.name

    def us_per_op(self, problem: Problem) -> float:
        """Return the estimated time for each op of the problem, in us."""
        return self.num_plans * (PLAN_US + parts_us(len(accelerators(problem))))

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        """Call the strategy, for about the estimated time, or LEAST_SHARE of the time limit."""
        estimate_s = self.us_per_op(problem) * problem.num_ops / 1e6
        least_s = LEAST_SHARE * context.limits.time_limit_s
        limits = replace(context.limits, time_limit_s=max(estimate_s, least_s))
        solution = self.strategy(problem, replace(context, limits=limits))
        layout = getattr(self.strategy, "variables", VariableLayout.WHOLE)
        is_whole = layout is VariableLayout.WHOLE
        return self.strategy.name if is_whole else f"{layout} variables", solution


class WaysInTime:
    """The ways for which a share of the time limit is enough.

    The first ways are most often the best. If a number of parts of the batch is worse than a
    smaller number, larger numbers are not tried: more parts send more and smaller tensors, and take
    more time to construct.
    """

    def __init__(
        self, problem: Problem, context: Context, share: float, *, on_fewer_hosts: bool = False
    ) -> None:
        """Prepare the iteration.

        share: the share of the time limit for all ways together.
        on_fewer_hosts: whether an earlier search has tried the faster half of the hosts.
        """
        self._problem, self._limit_us = problem, context.limits.time_limit_s * 1e6
        fewer = on_faster_hosts(problem) if on_fewer_hosts else None
        self._were_tried = set[int]() if fewer is None else set(accelerators(fewer))
        self._most_us, self._used_us = share * self._limit_us, 0.0
        self._num_ways, self._num_left_out = 0, 0
        self._before = [] if context.split_start is None else [AsBefore(context.split_start)]
        self._objectives = dict[int, tuple[int, float]]()

    def __iter__(self) -> Iterator[Way]:
        """Yield the ways; the solutions that `note` gets in the meantime decide what follows."""
        yield from self._before
        for way in filter(None, map(self._untried, every_way(self._problem))):
            self._num_ways += 1
            if isinstance(way, OnMeshes) and way.num_parts >= self._too_many:
                continue
            way_us = way.us_per_op(self._problem) * self._problem.num_ops
            if self._used_us + way_us >= self._most_us:
                self._num_left_out += 1
                continue
            self._used_us += way_us
            yield way

    def _untried(self, way: Way) -> Way | None:
        """Return a way without the meshes that were tried on fewer hosts; None if none is left."""
        if not isinstance(way, OnMeshes):
            return way
        left = [mesh for mesh in way.meshes if not {*chain(*mesh.stages)} <= self._were_tried]
        return replace(way, meshes=tuple(left)) if left else None

    def note(self, way: Way, solution: Solution) -> None:
        """Take note of the solution of a way."""
        if isinstance(way, OnMeshes) and not way.hosts:
            self._objectives[way.num_parts] = solution.objective

    @property
    def _too_many(self) -> float:
        """The least number of parts that was worse than the best one, which is smaller."""
        best = min(self._objectives, key=lambda each: self._objectives[each], default=0)
        return min((each for each in self._objectives if each > best), default=math.inf)

    @property
    def share_used(self) -> float:
        """The estimated share of the time limit that the ways so far have taken."""
        return self._used_us / self._limit_us if self._limit_us else 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on the ways that were left out for lack of time."""
        if not self._num_left_out:
            return ()
        return (
            f"the time limit was too short to try {self._num_left_out} of {self._num_ways} ways to "
            "split",
        )


def every_way(problem: Problem) -> Iterator[Way]:
    """Yield the ways to split a step over two accelerators or more."""
    devices = accelerators(problem)
    if len(devices) < 2:
        return
    forms = _Forms.of(problem)
    yield from dict.fromkeys((*forms.first(problem), *forms.every()))
    yield AsStrategy(TensorParallel())
    yield AsStrategy(OsDpos(), OS_DPOS_PLANS)
    for layout in (VariableLayout.SPLIT, VariableLayout.MIRRORED):
        yield AsStrategy(DataParallel(variables=layout, by_host=forms.several_hosts))


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

    def every(self) -> tuple[Way, ...]:
        """Return all ways."""
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
                *self.proportional[:1],
                *self.buckets[:1],
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
    """Whether the parts of each op can be on one host with so many accelerators, or fill hosts."""
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
