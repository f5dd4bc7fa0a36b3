"""A way to split: one part of the batch is placed on several devices, and the others are copies.

The parts of a small batch take longer than their share, because a short op takes at least the time
of a kernel launch. So fewer parts than devices can be best. Then a group of devices has a part, and
the search for whole ops places the ops of the first part on the first group. The other parts are
placed alike on the other groups. All groups have copies of the variables. This combines data
parallelism with placement. If the groups are hosts, only gradients cross the network.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pesto_cli.bounds import critical_path_us
from pesto_cli.data.limits import Limits
from pesto_cli.data.plan import WHOLE_OPS
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.sharding.problems import Rewritten, prices_of, rewritten
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import VariableLayout, batch_plan, best_solution
from pesto_cli.strategies.devices import (
    accelerators,
    differ,
    hosts_of_devices,
    on_devices,
    speeds,
)
from pesto_cli.strategies.meshes import Mesh, most_parts, stages_of_width
from pesto_cli.strategies.order import in_order_of_whole_ops
from pesto_cli.strategies.part_devices import devices_of_parts
from pesto_cli.strategies.placement_mapping import UNPLACED, completed
from pesto_cli.strategies.split_search.ways import LEAST_SHARE, PLAN_US, parts_us, share_of
from pesto_cli.strategies.split_search.whole import SEARCH_BEFORE, Placer

# The search for the first placement takes this time for each op.
PLACE_US = 300.0
# Each number of devices in a group has an estimate of the step time. The search tries it if this is
# below GAIN times the estimate of one part for each device, and below WORST times the least
# estimate. GAIN is below 1, because one part for each device comes closer to its estimate.
GAIN, WORST = 0.95, 1.2


@dataclass(frozen=True)
class CopiedPlacement:
    """Place the first part of the batch on the first group of devices.

    Each other part is placed in the same way on its own group.

    placer: places the ops of the first part.
    groups: the devices of each part, equally many.
    bucket_bytes: see `Plan`.
    """

    name: ClassVar[str] = "copies of a placement"
    placer: Placer
    groups: tuple[tuple[int, ...], ...]
    bucket_bytes: int = 0

    def us_per_op(self, problem: Problem) -> float:
        """Return the estimated time for each op of the problem, in us."""
        return PLAN_US + parts_us(len(self.groups)) + PLACE_US

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        """Split, place the first part for a short time, and put each other part on its group.

        Raises:
            UnfitError: the batch cannot be split into so many parts.
        """
        limits = context.limits
        share = min(1.0, max(LEAST_SHARE, share_of(PLACE_US, problem, limits)))
        short = replace(limits, time_limit_s=share * limits.time_limit_s, workers=1)
        return self.name, self.search(problem, context, short)

    def search(
        self, problem: Problem, context: Context, limits: Limits, start: Solution | None = None
    ) -> Solution:
        """Return the solution after a search for the placement of the first part.

        limits: of this search.
        start: a solution of this way, from which the search also starts.

        Raises:
            UnfitError: the batch cannot be split into so many parts.
        """
        first = [group[0] for group in self.groups]
        weights = [sum(speeds(problem, group)) for group in self.groups]
        mirrored = VariableLayout.MIRRORED
        plan = batch_plan(problem, first, weights, by_host=True, variables=mirrored)
        split = rewritten(problem, replace(plan, bucket_bytes=self.bucket_bytes))
        part = first_part(problem, split, self.groups[0])
        alone = replace(
            context,
            limits=limits,
            warm_start=None,
            split_start=None,
            on_progress=lambda progress: None,
        )
        starts = {} if start is None else {SEARCH_BEFORE: _schedule_of(part, start)}
        placed = self.placer.place(part, alone, starts).schedule
        place_in_group = np.zeros(problem.num_devices, dtype=np.int64)
        place_in_group[list(self.groups[0])] = np.arange(len(self.groups[0]))
        stage = place_in_group[placed.device][split.serves]
        mesh = Mesh(tuple(zip(*self.groups, strict=True)))
        simulator, device = Simulator(split.problem), devices_of_parts(split, mesh, stage)
        schedules = in_order_of_whole_ops(simulator, device, placed.start_us[split.serves])
        return best_solution(problem, split, schedules)


def first_part(problem: Problem, split: Rewritten, devices: Sequence[int]) -> Problem:
    """Return the problem of the first part of a split step, on some accelerators of one host.

    It has the ops of the problem with whole ops. Each takes as long as its first part, and its
    tensors are as large as those of this part. What the split step does not need takes no time.
    """
    graph, found = problem.graph, split.problem
    time_us, tensor_bytes = np.zeros_like(problem.time_us), graph.tensor_bytes.copy()
    is_first = (split.origin >= 0) & (split.part <= 0)
    np.add.at(time_us, split.origin[is_first], found.time_us[is_first])
    for op in np.flatnonzero(is_first & split.is_priced).tolist():
        whole = graph.tensors_of(int(split.origin[op]))
        tensors = found.graph.tensors_of(op)[: len(whole)]
        tensor_bytes[whole[: len(tensors)]] = found.graph.tensor_bytes[tensors]
    here = np.array(hosts_of_devices(problem)) == hosts_of_devices(problem)[devices[0]]
    here[[each for each in accelerators(problem) if each not in devices]] = False
    part = replace(
        problem,
        graph=replace(graph, tensor_bytes=tensor_bytes),
        time_us=time_us,
        parts=None,
        chosen=WHOLE_OPS,
    )
    return on_devices(part, here) or part


def _schedule_of(part: Problem, solution: Solution) -> Schedule:
    """Return a schedule of the first part as in a solution of all parts."""
    device, start_us = solution.first_parts()
    placement = completed(part, device, np.full(part.num_ops, UNPLACED))
    return Simulator(part).list_schedule(placement.device, -start_us)


def copied_placements(
    problem: Problem, placer: Placer, bucket_bytes: int
) -> Iterator[CopiedPlacement]:
    """Yield the ways that may be faster than one part for each device, the fastest first."""
    count = len(accelerators(problem))
    groups_of = {
        width: groups
        for width in range(2, count // 2 + 1)
        if count % width == 0 and count // width <= most_parts(problem)
        if _are_alike(problem, groups := stages_of_width(accelerators(problem), width))
    }
    least_us = {width: _least_us(problem, width) for width in (1, *groups_of)}
    most_us = min(GAIN * least_us[1], WORST * min(least_us.values()))
    for width in sorted(groups_of, key=least_us.__getitem__):
        if least_us[width] < most_us:
            yield CopiedPlacement(placer, groups_of[width], bucket_bytes)


def _are_alike(problem: Problem, groups: Sequence[Sequence[int]]) -> bool:
    """Whether the devices of each group are equally fast, and on one host."""
    hosts = hosts_of_devices(problem)
    return not any(
        differ(problem, group) or len({hosts[each] for each in group}) > 1 for group in groups
    )


def _least_us(problem: Problem, width: int) -> float:
    """Return the least time of a step in which each group of `width` accelerators has a part.

    It is the larger of the longest path and the work of one accelerator. Transfers are ignored.
    """
    share = width / len(accelerators(problem))
    time_us = problem.time_us * prices_of(problem).least_ratios(share)
    part = replace(problem, time_us=time_us, parts=None, chosen=WHOLE_OPS)
    return max(critical_path_us(part), float(part.min_duration_us.sum()) / width)
