"""`tensor-parallel`: weights are split over the devices, and products with them.

The weights of consecutive layers are split by turns along their columns and their rows (Shoeybi et
al., Megatron-LM, 2019, Section 3). A product with columns gives columns of its output. The next
product, with rows, takes them as they are, and gives partial sums. So devices exchange activations
after every second layer, and never weights or their gradients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Phase
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.data.specs import OpSpec
from pesto_cli.errors import UnfitError
from pesto_cli.sharding.alternative import shares_of
from pesto_cli.sharding.decisions import Decision, decisions
from pesto_cli.sharding.problems import prices_of
from pesto_cli.sharding.propagation import propagate
from pesto_cli.sharding.rules.variables import along_axis, is_variable
from pesto_cli.sharding.variables import variable_decisions
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import dealt_solution, propagation_prices
from pesto_cli.strategies.meshes import devices_of_equal_parts


@dataclass(frozen=True)
class TensorParallel:
    """Split weights by turns along columns and rows; part i of each op is on device i."""

    name: ClassVar[str] = "tensor-parallel"
    splits: ClassVar[bool] = True
    needs_parts: ClassVar[bool] = True

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Split, deal the other variables, and order by upward rank.

        Raises:
            UnfitError: the profile has no prices of parts, or no weights can be split.
        """
        devices, graph = devices_of_equal_parts(problem), problem.graph
        parts = prices_of(problem)
        specs = parts.op_specs
        chosen, prices = decisions(problem.chosen, graph, specs), propagation_prices(problem)
        depth_of, weights = dict(_layers(graph, specs)), [1.0] * len(devices)
        found = []
        for first in (0, 1) if len(devices) > 1 else ():
            split = _split(graph, specs, depth_of, len(devices), first)
            if split:
                fixed = {**split, **chosen}
                found.append(propagate(graph, specs, {}, weights, prices, fixed, problem.local))
        if not found:
            raise UnfitError(
                f"no weights can be split over {len(devices)} accelerators; two accelerators or "
                "more, and layers with resource variables of two axes or more, were expected: use "
                "another strategy."
            )
        plan = min(found, key=lambda each: each.cost_us).plan
        return dealt_solution(problem, plan, devices)


def _layers(graph: OpGraph, specs: Sequence[OpSpec | None]) -> Iterator[tuple[int, int]]:
    """Yield (variable, number of its layer) for variables of two axes or more.

    A layer is an op of the forward pass that takes a value of such a variable and data. Its number
    is that of the layers on the longest path to it.
    """
    of = np.full(graph.num_ops, -1)  # the variable whose value an op computes from it alone
    depth, is_forward = np.zeros(graph.num_ops, dtype=np.int64), graph.labels.phase == Phase.FORWARD
    seen = set[int]()
    for op in graph.topological_order.tolist():
        before = graph.predecessors[op].tolist()
        depth[op] = max((int(depth[each]) for each in before), default=0)
        spec = specs[op]
        if spec is not None and is_variable(spec):
            of[op] = op if len(spec.outputs[0].sizes) > 1 else -1
        elif len(before) == 1 and of[before[0]] >= 0:
            of[op] = of[before[0]]
        elif is_forward[op]:
            taken = {int(of[each]) for each in before} - {-1}
            depth[op] += bool(taken)
            for variable in sorted(taken - seen):
                seen.add(variable)
                yield variable, int(depth[op])


def _split(
    graph: OpGraph,
    specs: Sequence[OpSpec | None],
    depth_of: dict[int, int],
    num_parts: int,
    first: int,
) -> dict[int, Decision]:
    """Return decisions that split each variable along the last axis or the one before it.

    first: 0 if layers of even numbers are split along the last axis, else 1.
    """
    decided: dict[int, Decision] = {}
    for variable, depth in depth_of.items():
        spec = specs[variable]
        assert spec is not None
        sizes = spec.outputs[0].sizes
        axis = len(sizes) - 1 - (depth + first) % 2
        extents = shares_of(sizes[axis], [1.0] * num_parts)
        if min(extents) > 0:
            way = along_axis(axis)
            found = variable_decisions(graph, specs, variable, way, extents)
            if found is not None and not found.keys() & decided.keys():
                decided.update(found)
    return decided
