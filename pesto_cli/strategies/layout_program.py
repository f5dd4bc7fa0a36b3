"""The integer program of layouts: one way to run each op, so that work and conversions cost least.

    min  sum_v c_v(s_v) + sum_(v,u) r_vu(s_v, s_u)

A way s_v of op v is one of its alternatives, in equal parts, or to stay whole. c_v is the time of a
part, or of the whole op. r_vu is the time of the conversion of a tensor of v to the layout in which
u takes it (Zheng et al., Alpa, OSDI '22, Section 4.2).

Ops with equal specs and with names that differ only in numbers, such as those of alike layers or of
time steps, take the same way. So the program does not grow with the number of layers.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from typing import NamedTuple

import numpy as np

from pesto_cli.data.columns import BoolArray, FloatArray
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.errors import UnfitError
from pesto_cli.ilp.pairwise import Pairs, total_cost
from pesto_cli.sharding.alternative import (
    Alternative,
    aligned_shares,
    has_main_op,
    shares_of,
)
from pesto_cli.sharding.decisions import decisions
from pesto_cli.sharding.layouts import WHOLE, Layout, Own, Partial, Replicated, Split
from pesto_cli.sharding.problems import prices_of
from pesto_cli.sharding.propagation import Prices
from pesto_cli.sharding.rules import preferred_alternatives
from pesto_cli.sharding.variables import is_handle
from pesto_cli.strategies.data_parallel import input_extents

# A part may be this many times as large as it would be if it were exactly in proportion.
MOST_EXCESS = 1.1

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Exposed:
    """The shares of the times of conversions that count; the rest is hidden beside computation.

    data: for tensors that depend on the inputs of the step.
    variables: for values of variables, and for gradients that updates take.
    """

    data: float
    variables: float


@dataclass(frozen=True)
class _Stored:
    """How a tensor is stored; shares: of the parts in what they have; empty if it is whole."""

    layout: Layout
    shares: tuple[float, ...] = ()


_ONE = _Stored(WHOLE)


@dataclass(frozen=True)
class _Way:
    """A way to run an op; without an alternative it is whole.

    share: the time on the busiest device, divided by that of the whole op.
    """

    inputs: tuple[_Stored, ...]
    outputs: tuple[_Stored, ...]
    share: float
    alternative: Alternative | None = None
    sizes: tuple[int, ...] = ()


class _Edge(NamedTuple):
    """An input of an op: a tensor between two nodes of the program.

    of_handle_us: the time of the op that takes the tensor, if it is a handle; else None.
    """

    producer: int
    output: int
    taker: int
    slot: int
    num_bytes: int
    is_of_variable: bool
    of_handle_us: float | None


class LayoutProgram:
    """The integer program of a problem.

    weights: `[num_parts]`, the relative sizes of parts, and the relative speeds of their devices.
    prices: the times of ops and of transfers. exposed: see `Exposed`.
    concurrency: number of ops that run at the same time on several devices, on average; the time
        of a whole op counts divided by it. Alpa assumes 1. Or `[num_ops]`, while each op runs.
    """

    def __init__(
        self,
        problem: Problem,
        weights: Sequence[float],
        prices: Prices,
        exposed: Exposed,
        concurrency: float | FloatArray = 1.0,
    ) -> None:
        self._problem, self._graph, self._parts = problem, problem.graph, prices_of(problem)
        self._weights, self._prices, self._exposed = weights, prices, exposed
        self._num_parts = len(weights)
        self._units = balanced_units(problem, weights)
        specs = self._parts.op_specs
        self._chosen = decisions(problem.chosen, problem.graph, specs)
        node_of_key: dict[tuple[object, ...], int] = {}
        self._node = [
            node_of_key.setdefault(self._key(op), len(node_of_key)) for op in range(problem.num_ops)
        ]
        self._whole_share = self._mean_of_nodes(1.0 / np.broadcast_to(concurrency, problem.num_ops))
        first = np.unique(self._node, return_index=True)[1]
        self._ways = [list(self._ways_of(int(op))) for op in first]

    def costs(self) -> list[FloatArray]:
        """Return the times of the ops of each node in each way, in us."""
        work_us = np.bincount(self._node, self._prices.work_us)
        costs = [
            work_us[node] * np.array([way.share for way in ways])
            for node, ways in enumerate(self._ways)
        ]
        for (one, other), cost in self._conversions.items():
            if one == other:
                costs[one] += np.diag(cost)
        return costs

    def pairs(self) -> Pairs:
        """Return the times of conversions between two nodes in each two ways, in us."""
        return {key: cost for key, cost in self._conversions.items() if key[0] < key[1]}

    def plan(self, options: Sequence[int]) -> Plan:
        """Return the plan in which each node has one of its ways."""
        ways = [self._ways[node][options[node]] for node in self._node]
        return Plan(
            {
                name: Choice(way.alternative.name, way.sizes)
                for name, way in zip(self._graph.names, ways, strict=True)
                if way.alternative is not None
            }
        )

    def cost_us(self, plan: Plan) -> float:
        """Return the cost of a plan that splits all ops of a node alike, in us.

        Raises:
            ValueError: a node has no way of this kind.
        """
        choices, options = plan.choices, [0] * len(self._ways)
        for op, node in enumerate(self._node):
            choice = choices.get(self._graph.names[op])
            name = "" if choice is None else choice.alternative
            options[node] = [_name(way) for way in self._ways[node]].index(name)
        return total_cost(self.costs(), self.pairs(), options)

    def _key(self, op: int) -> tuple[object, ...]:
        """Return a key that is equal for ops that take the same way."""
        name, spec = self._graph.names[op], int(self._parts.spec_of[op])
        chosen = self._problem.chosen.choices.get(name)
        return (name,) if spec < 0 else (_NUMBER.sub("#", name), spec, chosen, self._is_dealt(op))

    def _mean_of_nodes(self, share: FloatArray) -> FloatArray:
        """Return the mean of a share over the ops of each node, weighted by time, `[num_nodes]`."""
        work_us = np.bincount(self._node, self._prices.work_us)
        of_work_us = np.bincount(self._node, share * self._prices.work_us)
        return np.divide(of_work_us, work_us, out=np.ones(len(work_us)), where=work_us > 0)

    def _is_dealt(self, op: int) -> bool:
        """Return whether an op is together with a variable, so that it is dealt to a device."""
        return bool(self._has_variable[self._graph.colocation_group[op]])

    def _ways_of(self, op: int) -> Iterator[_Way]:
        """Yield the ways to run an op.

        If the user's constraints split the op, there is one way. Ways are left out if a part is so
        small that the profile does not price it.
        """
        if op in self._chosen:
            chosen = self._chosen[op]
            yield self._way(op, chosen.alternative, chosen.sizes)
            return
        num_inputs = 0 if self._graph.inputs is None else len(self._graph.inputs[op])
        num_outputs = len(self._graph.tensors_of(op))
        share = 1.0 / self._num_parts if self._is_dealt(op) else self._whole_share[self._node[op]]
        yield _Way((_ONE,) * num_inputs, (_ONE,) * num_outputs, share)
        spec = self._parts.spec(op)
        for way in () if spec is None else preferred_alternatives(spec, self._problem.local):
            equal = (1,) * self._num_parts
            sizes = (
                equal if way.size is None else aligned_shares(way.size, self._weights, self._units)
            )
            if min(sizes) > 0 and not self._splits_constant(op, way):
                with suppress(UnfitError):
                    yield self._way(op, way, sizes)

    def _way(self, op: int, way: Alternative, sizes: tuple[int, ...]) -> _Way:
        inputs, outputs = (
            tuple(_stored(layout, way, sizes) for layout in layouts)
            for layouts in (way.inputs, way.outputs)
        )
        share = 1.0 if way.size is None else self._share(op, way, sizes)
        return _Way(inputs, outputs, share, way, sizes)

    def _splits_constant(self, op: int, way: Alternative) -> bool:
        """Return whether parts take their own terms of a small constant, which has none."""
        row = () if self._graph.inputs is None else self._graph.inputs[op].tolist()
        return any(
            tensor < 0 and isinstance(layout, Partial | Own)
            for tensor, layout in zip(row, way.inputs, strict=False)
        )

    def _share(self, op: int, way: Alternative, sizes: tuple[int, ...]) -> float:
        """Return the time of the longest part, divided by that of the op on the fastest device.

        Parts that consist of added ops are not priced as parts. Each counts with its share.
        """
        fastest, whole, spec = max(self._weights), way.size or 1, self._parts.spec(op)
        assert spec is not None

        def ratio(share: float) -> float:
            if not has_main_op(spec, way):
                return share
            return float(np.nanmin(self._parts.part_ratio(op, way.name, share)))

        return max(
            ratio(size / whole) * fastest / weight
            for size, weight in set(zip(sizes, cycle(self._weights)))
        )

    @cached_property
    def _conversions(self) -> dict[tuple[int, int], FloatArray]:
        """The times of conversions by node and node with an equal or greater index."""
        found: dict[tuple[int, int], FloatArray] = {}
        for edge, count in Counter(self._edges()).items():
            one, other, cost = edge.producer, edge.taker, count * self._table_us(edge)
            key, cost = ((one, other), cost) if one <= other else ((other, one), cost.T)
            found[key] = found[key] + cost if key in found else cost
        return found

    def _edges(self) -> Iterator[_Edge]:
        """Yield the inputs of all ops."""
        if self._graph.inputs is None:
            return
        producers, first = self._graph.tensor_producer.tolist(), self._graph.op_tensors.tolist()
        num_bytes, of_variables = self._graph.tensor_bytes.tolist(), self._of_variables.tolist()
        work_us = self._prices.work_us.tolist()
        for op, row in enumerate(self._graph.inputs.rows()):
            for slot, tensor in enumerate(row):
                if tensor is not None:
                    producer = producers[tensor]
                    yield _Edge(
                        self._node[producer],
                        tensor - first[producer],
                        self._node[op],
                        slot,
                        num_bytes[tensor],
                        of_variables[producer] or self._is_dealt(op),
                        work_us[op] if is_handle(self._graph, tensor) else None,
                    )

    def _table_us(self, edge: _Edge) -> FloatArray:
        """Return the times of a conversion, `[ways of the producer, ways of the taker]`."""
        exposed = self._exposed.variables if edge.is_of_variable else self._exposed.data
        byte_us = exposed * self._prices.us_per_byte * edge.num_bytes
        latency_us = exposed * self._prices.latency_us
        table = np.empty((len(self._ways[edge.producer]), len(self._ways[edge.taker])))
        for row, one in zip(table, self._ways[edge.producer], strict=True):
            has = one.outputs[edge.output]
            for column, other in enumerate(self._ways[edge.taker]):
                wanted, in_parts = other.inputs[edge.slot], other.alternative is not None
                if edge.of_handle_us is not None:
                    # Parts that take the handle of a whole variable are all on its device.
                    is_together = has == _ONE and in_parts
                    more_us = edge.of_handle_us * (1 - other.share) if is_together else 0.0
                    row[column] = more_us if has == wanted else np.inf
                else:
                    copies, messages = _traffic(has, wanted, self._num_parts, in_parts)
                    cost_us = copies * byte_us + messages * latency_us
                    row[column] = cost_us if np.isfinite(copies) else np.inf
        return table

    @cached_property
    def _has_variable(self) -> BoolArray:
        """`[num_groups]`: whether a variable is in a colocation group."""
        graph = self._graph
        return np.bincount(graph.colocation_group, graph.resident_bytes, graph.num_groups) > 0

    @cached_property
    def _of_variables(self) -> BoolArray:
        """`[num_ops]`: whether an op is a variable, or takes only values of variables."""
        found: BoolArray = self._graph.resident_bytes > 0
        for op in self._graph.topological_order.tolist():
            before = self._graph.predecessors[op]
            found[op] |= len(before) > 0 and bool(found[before].all())
        return found


def _name(way: _Way) -> str:
    return "" if way.alternative is None else way.alternative.name


def balanced_units(problem: Problem, weights: Sequence[float]) -> Sequence[int]:
    """Return the extents of inputs whose units give parts nearly in proportion to weights.

    If no extent does, all are returned. For example, 10 time steps may divide the 10,000 rows of
    an embedding by chance. Eight parts of whole tenths would have 1,000 or 2,000 rows, so this
    extent is left out.
    """

    def excess(unit: int) -> float:
        shares = np.array(shares_of(unit, weights)) / unit
        return float((shares * sum(weights) / np.array(weights)).max())

    units = input_extents(problem, len(weights))
    return [unit for unit in units if excess(unit) <= MOST_EXCESS] or units


def _stored(layout: Layout, way: Alternative, sizes: tuple[int, ...]) -> _Stored:
    if layout == WHOLE:
        return _ONE
    whole = way.size if isinstance(layout, Split) and way.size else 1
    return _Stored(layout, tuple(size / whole if whole > 1 else 1.0 for size in sizes))


def _traffic(has: _Stored, wanted: _Stored, num_parts: int, in_parts: bool) -> tuple[float, float]:
    """Return what each of n devices sends to convert a tensor: its copies, and messages.

    The work is even over the devices, as the owners of whole tensors are: n - 1 copies that one
    device sends are (n - 1) / n for each. in_parts: whether all parts take the tensor.
    """
    others = (num_parts - 1) / num_parts
    if isinstance(has.layout, Own) or isinstance(wanted.layout, Own | Partial):
        return (0.0, 0.0) if has == wanted else (np.inf, 0.0)
    if isinstance(has.layout, Replicated) or (has == wanted and (has != _ONE or not in_parts)):
        return 0.0, 0.0
    to_all = in_parts and not isinstance(wanted.layout, Split)
    if has == _ONE:
        return (others, others) if to_all else (others / num_parts, others)
    if isinstance(has.layout, Partial):
        return (2 * others, 2 * others) if to_all else (others, (1 + in_parts) * others)
    if not in_parts:
        return others / num_parts, others
    return (others, 2 * others) if to_all else (others / num_parts, 2 * others)
