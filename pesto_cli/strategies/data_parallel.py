"""`data-parallel`: every op that can be is split along the batch, part i on device i.

Whole variables are dealt to the devices by their bytes and the work of their updates. Each is read
by the parts on all devices. Partial gradients are added on the device of their variable, so each
device is a parameter server of some variables. `VariableLayout` has the other possibilities.

`ev-ps`, `ev-ar`, `cp-ps` and `cp-ar` are the baselines of HeteroG (Yi et al., CoNEXT '20, Section
6): parts of equal size (EV) or in proportion to the speed of their device (CP), and parameter
servers (PS) or an all-reduce (AR). A device has one part, where HeteroG gives a fast one several
equal replicas. The all-reduce is flat or by host, whichever is faster (Section 3.4). HeteroG's flat
one is a ring. Here each device adds its share of a large gradient: it sends as many bytes as in a
ring, but more of them cross hosts. `horovod` has rings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np

from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.columns import IntArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Role
from pesto_cli.data.plan import Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.data.solution import PlanSet, Solution
from pesto_cli.data.specs import OpSpec
from pesto_cli.errors import BadInputError, UnfitError, unknown_name
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.sharding.alternative import shares_of
from pesto_cli.sharding.decisions import Decision, decisions
from pesto_cli.sharding.problems import Rewritten, prices_of, rewritten
from pesto_cli.sharding.propagation import Prices, propagate
from pesto_cli.sharding.rules import alternatives
from pesto_cli.sharding.rules.variables import is_variable
from pesto_cli.sharding.variables import choices_of, variable_decisions
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators, hosts_of_devices
from pesto_cli.strategies.meshes import (
    Mesh,
    devices_of_equal_parts,
    layer_of_ops,
    stages_of_layers,
    weights_of_parts,
)
from pesto_cli.strategies.order import in_order_of_depth, ordered
from pesto_cli.strategies.part_devices import devices_of_parts
from pesto_cli.strategies.replicated_updates import with_replicated_updates

# A variable with a larger share of all bytes than this is split: the parts of an equal deal.
LARGE_SHARE = 0.25


class VariableLayout(StrEnum):
    """How the variables of a data-parallel step are stored.

    WHOLE: each has one owner. SPLIT: large ones are split over all devices, the others have one
    owner. MIRRORED: each device has a copy of all variables that can be mirrored, and updates it
    with the sum of all gradients.
    """

    WHOLE = "whole"
    SPLIT = "split"
    MIRRORED = "mirrored"


@dataclass(frozen=True)
class DataParallel:
    """Split along the batch.

    proportional: the sizes of parts are in proportion to the speeds of their devices, as far as
        the profile prices such parts; see `weights_of_parts`.
    by_host: add partial sums on each host before they cross hosts, and send variables to each host
        once. If None, whichever is faster.
    variables: see `VariableLayout`. The name of a layout is also accepted.
    bucket_bytes: see `Plan`; only gradients of mirrored variables are added in buckets.
    parts: the number of parts; see `devices_of_equal_parts`.

    Raises:
        BadInputError: there is no such layout, or fewer than two parts are wanted.
    """

    name: ClassVar[str] = "data-parallel"
    splits: ClassVar[bool] = True
    needs_parts: ClassVar[bool] = True
    proportional: bool = False
    by_host: bool | None = False
    variables: VariableLayout = VariableLayout.WHOLE
    bucket_bytes: int = 0
    parts: int | None = None

    def __post_init__(self) -> None:
        """Replace the name of a layout by the layout."""
        if self.variables not in [*VariableLayout]:
            raise unknown_name("layout of variables", str(self.variables), [*VariableLayout])
        if self.parts is not None and self.parts < 2:
            raise BadInputError(
                f"the batch is to be split into {self.parts} parts; at least 2 were expected."
            )
        object.__setattr__(self, "variables", VariableLayout(self.variables))

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Split, deal the variables, and take the faster of two orders; see `dealt`."""
        devices = devices_of_equal_parts(problem, self.parts)
        weights = weights_of_parts(problem, devices, proportional=self.proportional)
        by_host = bool(self.by_host)
        plan = batch_plan(problem, devices, weights, by_host=by_host, variables=self.variables)
        plan = replace(plan, bucket_bytes=self.bucket_bytes)
        deal = best_of_sums if self.by_host is None else dealt_solution
        return deal(problem, plan, devices)


def best_of_sums(problem: Problem, plan: Plan, device_of_part: Sequence[int]) -> Solution:
    """Return a plan with its parts on their devices: with flat sums or by host, the faster.

    Flat: each device sends its part of a sum to where it is added. By host: parts are added on each
    host first (HeteroG, Section 3.4), and copies are sent to each host once.
    """
    hosts, plans = hosts_of(problem, device_of_part), [plan]
    if 1 < len(set(hosts)) < len(hosts):
        plans.append(replace(plan, hosts=hosts))
    solutions = [dealt_solution(problem, each, device_of_part) for each in plans]
    return min(solutions, key=lambda solution: solution.objective)


def dealt_solution(problem: Problem, plan: Plan, device_of_part: Sequence[int]) -> Solution:
    """Return a plan with its parts on their devices, in the faster of two orders; see `dealt`."""
    return dealt(problem, rewritten(problem, plan), Mesh((tuple(device_of_part),)))


def dealt(problem: Problem, split: Rewritten, mesh: Mesh) -> Solution:
    """Return a solution with the parts of ops on the devices of a mesh.

    Two orders are tried: by upward rank, and by depth. If there are micro-batches, a third one has
    earlier micro-batches first, so that a stage computes gradients as soon as it can (1F1B:
    Narayanan et al., PipeDream, 2019, Section 3.2).
    """
    stage = stages_of_ops(problem, split, mesh)
    simulator, device = Simulator(split.problem), devices_of_parts(split, mesh, stage)
    schedules = [ordered(simulator, device), in_order_of_depth(simulator, device)]
    if mesh.num_micro_batches > 1:
        rank_us = simulator.upward_rank(device)
        micro_batch = np.maximum(split.part, 0) // mesh.width
        first = rank_us - micro_batch * rank_us.max(initial=0.0)
        schedules.append(simulator.list_schedule(device, first))
    return best_solution(problem, split, schedules)


def best_solution(problem: Problem, split: Rewritten, schedules: Sequence[Schedule]) -> Solution:
    """Return the solution with the best of some schedules, and the bound for all plans."""
    return replace(
        split.solution(problem, min(schedules, key=lambda each: objective(split.problem, each))),
        lower_bound_us=all_plans_bound_us(problem),
        bound_holds_for=PlanSet.ALL_PLANS,
    )


def stages_of_ops(problem: Problem, split: Rewritten, mesh: Mesh) -> IntArray:
    """Return the stage of each op of a split problem, `[num_ops]`.

    Stages have contiguous layers. The work of a layer is the time of its ops on the devices of a
    stage, on average.
    """
    if len(mesh.stages) == 1:
        return np.zeros(split.problem.num_ops, dtype=np.int64)
    layer, duration_us = layer_of_ops(problem)[split.serves], split.problem.duration_us
    work_us = [
        np.bincount(layer, np.where(np.isfinite(time_us), time_us, 0.0))
        for time_us in (duration_us[:, stage].mean(axis=1) for stage in mesh.stages)
    ]
    return stages_of_layers(np.stack(work_us, axis=1))[layer]


class EvPs(DataParallel):
    """HeteroG's baseline with parameter servers."""

    name: ClassVar[str] = "ev-ps"


@dataclass(frozen=True)
class EvAr(DataParallel):
    """HeteroG's baseline with an all-reduce."""

    name: ClassVar[str] = "ev-ar"
    by_host: bool | None = None
    variables: VariableLayout = VariableLayout.MIRRORED


@dataclass(frozen=True)
class CpPs(DataParallel):
    """HeteroG's baseline with parameter servers, and parts in proportion to speeds."""

    name: ClassVar[str] = "cp-ps"
    proportional: bool = True


@dataclass(frozen=True)
class CpAr(CpPs):
    """HeteroG's baseline with an all-reduce, and parts in proportion to speeds."""

    name: ClassVar[str] = "cp-ar"
    by_host: bool | None = None
    variables: VariableLayout = VariableLayout.MIRRORED


def batch_plan(
    problem: Problem,
    device_of_part: Sequence[int],
    weights: Sequence[float] = (),
    *,
    by_host: bool = False,
    variables: VariableLayout = VariableLayout.WHOLE,
) -> Plan:
    """Return the plan that splits as much work as possible along the batch.

    The sizes of parts are in proportion to `weights`, or equal if there are none.

    The batch is the extent of an axis of the step's inputs: the one along which the step costs
    least if all inputs that have it are split there. Ops that the user's constraints split are
    split as these say.

    Raises:
        UnfitError: the profile has no prices of parts, or no input can be split over two devices.
    """
    parts, graph = prices_of(problem), problem.graph
    if len(device_of_part) < 2:
        raise UnfitError(
            f"the batch cannot be split for {len(device_of_part)} accelerator; two or more that "
            "may run ops were expected: use another strategy."
        )
    specs = parts.op_specs
    weights = weights or [1.0] * len(device_of_part)
    prices, chosen = propagation_prices(problem), decisions(problem.chosen, graph, specs)
    copies = decisions_on_variables(graph, specs, variables, len(device_of_part), chosen)
    fixed = {**copies, **chosen}
    found = [
        propagate(graph, specs, seeds, weights, prices, fixed, problem.local)
        for seeds in _seeds(problem, weights)
    ]
    found = [each for each in found if each.plan]
    if not found:
        raise UnfitError(
            f"no input of the step can be split into {len(device_of_part)} parts; inputs with a "
            "common extent of which each part has at least one were expected: use another strategy."
        )
    best = min(found, key=lambda each: each.cost_us).plan
    if variables is VariableLayout.MIRRORED:
        decided = decisions(best, graph, specs)
        decided = with_replicated_updates(decided, graph, specs, len(device_of_part), chosen)
        best = Plan(choices_of(graph, decided))
    hosts = hosts_of(problem, device_of_part) if by_host else ()
    return Plan(best.choices, hosts if len(set(hosts)) > 1 else ())


def decisions_on_variables(
    graph: OpGraph,
    specs: Sequence[OpSpec | None],
    variables: VariableLayout,
    num_parts: int,
    chosen: Mapping[int, Decision],
) -> dict[int, Decision]:
    """Return the decisions for variables, by decreasing bytes; chosen: decisions of the user."""
    decided: dict[int, Decision] = {}
    if variables is VariableLayout.WHOLE or num_parts < 2:
        return decided
    num_bytes = graph.resident_bytes
    least = LARGE_SHARE / num_parts * num_bytes.sum()
    for op in np.argsort(-num_bytes, kind="stable").tolist():
        spec = specs[op]
        if spec is None or not is_variable(spec) or op in decided:
            continue
        if variables is VariableLayout.SPLIT and num_bytes[op] < least:
            break
        for way in alternatives(spec):
            if (way.size is None) != (variables is VariableLayout.MIRRORED):
                continue
            sizes = way.equal_sizes(num_parts)
            found = variable_decisions(graph, specs, op, way.name, sizes) if min(sizes) else None
            taken = decided.keys(), chosen.keys()
            if found is not None and all(map(found.keys().isdisjoint, taken)):
                decided.update(found)
                break
    return decided


def _seeds(problem: Problem, weights: Sequence[float]) -> Iterator[dict[int, int]]:
    """Yield ways to split the inputs of the step: for each extent, {tensor: axis}.

    weights: relative sizes of the parts. An extent is left out if a part had none of it.
    """
    shape_of = _shapes_of_inputs(problem)
    for extent in input_extents(problem, len(weights)):
        if min(shares_of(extent, weights)) == 0:
            continue
        yield {tensor: shape.index(extent) for tensor, shape in shape_of.items() if extent in shape}


def input_extents(problem: Problem, num_parts: int) -> list[int]:
    """Return the extents of axes of the step's inputs that are large enough, descending."""
    shapes = _shapes_of_inputs(problem).values()
    extents = {size for shape in shapes for size in shape if size and size >= num_parts}
    return sorted(extents, reverse=True)


def _shapes_of_inputs(problem: Problem) -> dict[int, tuple[int | None, ...]]:
    """Return the shapes of the tensors of the step's inputs: {tensor: shape}.

    Inputs are feeds. If there are none, they are the ops without predecessors, other than
    variables, and the ops that take nothing else, such as the next batch of an iterator.
    """
    graph = problem.graph
    inputs = np.flatnonzero(graph.labels.has_role(Role.FEED))
    if not len(inputs):
        is_source = (graph.predecessors.degree == 0) & ~graph.labels.has_role(Role.VARIABLE)
        brings_data = is_source.copy()
        for op in np.flatnonzero(graph.predecessors.degree > 0).tolist():
            brings_data[op] = is_source[graph.predecessors[op]].all()
        inputs = np.flatnonzero(brings_data)
    return {
        tensor: graph.tensor_shape[tensor] or ()
        for op in inputs.tolist()
        for tensor in graph.tensors_of(op)
        if graph.tensor_shape
    }


def propagation_prices(problem: Problem) -> Prices:
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
    hosts = hosts_of_devices(problem)
    names = [hosts[device] for device in device_of_part]
    return tuple(list(dict.fromkeys(names)).index(name) for name in names)
