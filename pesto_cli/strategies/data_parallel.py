"""`data-parallel`: every op that can be is split along the batch, part i on device i.

Variables are whole, and dealt to the devices by their bytes and the work of their updates. Each is
read by the parts on all devices. Partial gradients are added on the device of their variable, so
each device is a parameter server of some variables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.labels import Role
from pesto_cli.data.plan import Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import PlanSet, Solution
from pesto_cli.errors import UnfitError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.sharding.decisions import decisions
from pesto_cli.sharding.problems import prices_of, rewritten
from pesto_cli.sharding.propagation import Prices, propagate
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.part_devices import devices_of_parts


@dataclass(frozen=True)
class DataParallel:
    """Split along the batch.

    proportional: give a device that is k times as fast as the slowest k parts of equal size, as
        HeteroG's proportional replicas; otherwise each device has one part.
    by_host: add partial sums on each host before they cross hosts, and send variables to each host
        once.
    """

    name: ClassVar[str] = "data-parallel"
    splits: ClassVar[bool] = True
    needs_parts: ClassVar[bool] = True
    proportional: bool = False
    by_host: bool = False

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Split, deal the variables, and order by upward rank."""
        device_of_part = self.devices(problem)
        split = rewritten(problem, batch_plan(problem, device_of_part, by_host=self.by_host))
        simulator = Simulator(split.problem)
        schedule = ordered(simulator, devices_of_parts(split, device_of_part))
        return Solution(
            asked=problem,
            problem=split.problem,
            origin=split.origin,
            schedule=schedule,
            lower_bound_us=all_plans_bound_us(problem),
            bound_holds_for=PlanSet.ALL_PLANS,
            plan=split.plan,
            part=split.part,
        )

    def devices(self, problem: Problem) -> list[int]:
        """Return the device of each part."""
        candidates = accelerators(problem)
        if not self.proportional:
            return candidates
        times_us = np.array([_total_us(problem, device) for device in candidates])
        counts = np.rint(times_us.max() / times_us).astype(int)
        return [
            device for device, count in zip(candidates, counts, strict=True) for _ in range(count)
        ]

    def hosts(self, problem: Problem) -> tuple[int, ...]:
        """Return the host of each part."""
        return hosts_of(problem, self.devices(problem))


def _total_us(problem: Problem, device: int) -> float:
    """Return the time of all ops that a device can run."""
    time_us = problem.duration_us[:, device]
    return float(time_us[np.isfinite(time_us)].sum())


def batch_plan(problem: Problem, device_of_part: Sequence[int], *, by_host: bool = False) -> Plan:
    """Return the plan that splits as much work as possible along the batch, in equal parts.

    The batch is the extent of an axis of the step's inputs: the one along which the step costs
    least if all inputs that have it are split there. Ops that the user's constraints split are
    split as these say.

    Raises:
        UnfitError: the profile has no prices of parts, or no input can be split.
    """
    parts, graph = prices_of(problem), problem.graph
    specs = [parts.spec(op) for op in range(problem.num_ops)]
    weights = [1.0] * len(device_of_part)
    prices, fixed = _prices(problem), decisions(problem.chosen, graph, specs)
    found = [
        propagate(graph, specs, seeds, weights, prices, fixed)
        for seeds in _seeds(problem, len(device_of_part))
    ]
    found = [each for each in found if each.plan]
    if len(device_of_part) < 2 or not found:
        raise UnfitError(
            f"no input of the step can be split into {len(device_of_part)} parts; two accelerators "
            "or more, and inputs with a common extent of at least as many, were expected: use "
            "another strategy."
        )
    best = min(found, key=lambda each: each.cost_us).plan
    return Plan(best.choices, hosts_of(problem, device_of_part) if by_host else ())


def _seeds(problem: Problem, num_parts: int) -> Iterator[dict[int, int]]:
    """Yield ways to split the inputs of the step: for each extent, {tensor: axis}."""
    graph = problem.graph
    inputs = np.flatnonzero(graph.labels.has_role(Role.FEED))
    if not len(inputs):
        is_source = graph.predecessors.degree == 0
        inputs = np.flatnonzero(is_source & ~graph.labels.has_role(Role.VARIABLE))
    shape_of = {
        tensor: graph.tensor_shape[tensor] or ()
        for op in inputs.tolist()
        for tensor in graph.tensors_of(op)
        if graph.tensor_shape
    }
    extents = {size for shape in shape_of.values() for size in shape if size and size >= num_parts}
    for extent in sorted(extents, reverse=True):
        yield {tensor: shape.index(extent) for tensor, shape in shape_of.items() if extent in shape}


def _prices(problem: Problem) -> Prices:
    """Return the time of each op on its fastest device, and of transfers between accelerators."""
    devices = accelerators(problem)
    num_bytes = np.array([0, 2**30])
    times_us = np.array(
        [
            problem.machine.transfer_us(num_bytes, src, dst)
            for src in devices
            for dst in devices
            if src != dst
        ]
    ).reshape(-1, 2)
    latency_us, long_us = times_us.mean(axis=0) if len(times_us) else (0.0, 0.0)
    return Prices(problem.min_duration_us, float(long_us - latency_us) / 2**30, float(latency_us))


def hosts_of(problem: Problem, device_of_part: Sequence[int]) -> tuple[int, ...]:
    """Return the host of each part, numbered in order of appearance."""
    names = [problem.machine.devices[device].name.rpartition("/")[0] for device in device_of_part]
    return tuple(list(dict.fromkeys(names)).index(name) for name in names)
