"""Propagation: split as many ops as possible, so that few tensors change their layout.

Some tensors (the inputs of a step) are split along given axes. Each op, in topological order, takes
the alternative that costs least: the time of its work, shared by the parts, and the time in which
its inputs are brought into the layouts that it takes. A tensor is merged once for all whole ops
that take it. Then, in reverse order, ops whose inputs are whole (initial states, the gradient of a
mean) take the layout in which their consumers take them.

The idea is that of GSPMD (Section 3.5), which propagates the layouts that a user gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pesto_cli.data.columns import FloatArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Phase
from pesto_cli.data.plan import Local, Plan
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, aligned_shares, shares_of
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.layouts import WHOLE, Layout, Own, Partial, Replicated, Split, Whole
from pesto_cli.sharding.rules import preferred_alternatives
from pesto_cli.sharding.variables import choices_of, is_handle


@dataclass(frozen=True, eq=False)
class Arrival:
    """The layout of a tensor; a propagation has one object for equal ones.

    extents: of its parts on the axis that is split; 1 for each part if no axis is split; empty if
        the tensor is whole.
    """

    layout: Layout
    extents: tuple[int, ...] = ()


ARRIVES_WHOLE = Arrival(WHOLE)


@dataclass(frozen=True)
class Prices:
    """What an op and a change of layout cost.

    work_us: `[num_ops]`, the time of the whole op.
    us_per_byte: time of a transfer for each byte; latency_us: of each transfer.
    """

    work_us: FloatArray
    us_per_byte: float
    latency_us: float


@dataclass(frozen=True, eq=False)
class Propagated:
    """A plan, with the time that one device works and the links transfer, roughly, in us."""

    plan: Plan
    cost_us: float


def propagate(
    graph: OpGraph,
    specs: Sequence[OpSpec | None],
    seeds: Mapping[int, int],
    weights: Sequence[float],
    prices: Prices,
    fixed: Mapping[int, Decision] = MappingProxyType({}),
    local: frozenset[Local] = frozenset(),
) -> Propagated:
    """Return the plan that follows from splitting some tensors.

    Args:
        graph: the graph, with inputs by slot.
        specs: `[num_ops]`.
        seeds: tensor -> axis along which it is split.
        weights: `[num_parts]`, the relative sizes of the parts.
        prices: see `Prices`.
        fixed: decisions that are kept, by op.
        local: what parts may compute in another way; then they do.
    """
    walk = _Propagation(graph, specs, seeds, weights, prices, fixed, local)
    walk.forward()
    walk.backward()
    return walk.result()


class _Propagation:
    def __init__(
        self,
        graph: OpGraph,
        specs: Sequence[OpSpec | None],
        seeds: Mapping[int, int],
        weights: Sequence[float],
        prices: Prices,
        fixed: Mapping[int, Decision],
        local: frozenset[Local],
    ) -> None:
        self._graph, self._specs, self._prices, self._fixed = graph, specs, prices, fixed
        self._local = local
        self._weights, self._num_parts = weights, len(weights)
        self._rows = [] if graph.inputs is None else list(graph.inputs.rows())
        self._bytes: list[int] = graph.tensor_bytes.tolist()
        self._work_us: list[float] = prices.work_us.tolist()
        self._is_update: list[bool] = (graph.labels.phase == Phase.UPDATE).tolist()
        self._one_of: dict[tuple[Layout, tuple[int, ...]], Arrival] = {(WHOLE, ()): ARRIVES_WHOLE}
        self._stored_by: dict[Decision, tuple[list[Arrival], list[Arrival]]] = {}
        self._seeds = seeds
        extent_of = {tensor: _extent(graph, tensor, axis) for tensor, axis in seeds.items()}
        self._units = sorted({*extent_of.values()}, reverse=True)
        self._arrival = [ARRIVES_WHOLE] * graph.num_tensors
        for tensor, axis in seeds.items():
            self._arrival[tensor] = self._one(Split(axis), shares_of(extent_of[tensor], weights))
        self._chosen: dict[int, Decision] = {}
        self._cheapest: dict[tuple[object, ...], tuple[float, Decision | None]] = {}
        # The cost of each op in us. It is removed if the layout of an input changes.
        self._known_us: dict[int, float] = {}
        # For each tensor that arrives as parts: the first whole op that takes it. The cost of this
        # op contains the cost of merging the parts. Later whole ops take the merged tensor.
        self._merged_for: dict[int, int] = {}

    def forward(self) -> None:
        """Choose the cheapest alternative of each op whose inputs are not all whole."""
        for op in self._graph.topological_order.tolist():
            decision = self._fixed.get(op)
            if decision is not None:
                self._take(op, decision)
                continue
            arrivals = self._arrivals(op)
            if any(arrival is not ARRIVES_WHOLE for arrival in arrivals):
                self._choose(op, arrivals)

    def backward(self) -> None:
        """Split ops with whole inputs if their consumers take the outputs split."""
        for op in reversed(self._graph.topological_order.tolist()):
            spec = self._specs[op]
            if op not in self._chosen and spec is not None:
                demand = self._demand(op)
                if demand is not None and isinstance(demand.layout, Split):
                    self._supply(op, spec, demand, demand.layout)

    def result(self) -> Propagated:
        """Return the plan and its cost."""
        known_us = self._known_us
        cost_us = sum(
            known_us[op]
            if op in known_us
            else self._cost_us(op, self._chosen.get(op), self._arrivals(op))
            for op in range(self._graph.num_ops)
        )
        return Propagated(Plan(choices_of(self._graph, self._chosen)), cost_us)

    def _choose(self, op: int, arrivals: Sequence[Arrival]) -> None:
        """Take the cheapest alternative of an op; ops that are alike take the same one."""
        spec, row, decision = self._specs[op], self._row(op), None
        if spec is not None:
            num_bytes = [None if tensor is None else self._bytes[tensor] for tensor in row]
            is_merged = [tensor in self._merged_for for tensor in row]
            key = spec, *arrivals, *num_bytes, *is_merged, self._work_us[op], self._is_update[op]
            if key not in self._cheapest:
                self._cheapest[key] = self._cheapest_decision(op, spec, arrivals)
            self._known_us[op], decision = self._cheapest[key]
        if decision is not None:
            self._take(op, decision)
            return
        for tensor, arrival in zip(row, arrivals, strict=True):
            if tensor is not None and arrival is not ARRIVES_WHOLE:
                self._merged_for.setdefault(tensor, op)

    def _cheapest_decision(
        self, op: int, spec: OpSpec, arrivals: Sequence[Arrival]
    ) -> tuple[float, Decision | None]:
        """Return the least cost of an op in us, and its decision; None if the op stays whole."""
        ways: list[Decision | None] = [None]
        for alternative in preferred_alternatives(spec, self._local):
            if not isinstance(next(iter(alternative.outputs), None), Replicated):
                sizes = self._sizes(spec, alternative, arrivals)
                if sizes is not None:
                    ways.append(Decision(spec, alternative, sizes))
        costs_us = [self._cost_us(op, way, arrivals) for way in ways]
        return min(zip(costs_us, ways, strict=True), key=lambda each: each[0])

    def _take(self, op: int, decision: Decision) -> None:
        self._chosen[op] = decision
        for tensor, given in zip(self._outputs(op), self._stored(decision)[1], strict=True):
            if tensor not in self._seeds:
                self._arrival[tensor] = given

    def _sizes(
        self, spec: OpSpec, alternative: Alternative, arrivals: Sequence[Arrival]
    ) -> tuple[int, ...] | None:
        """Return sizes of the parts that agree with the inputs that arrive split; None if none."""
        if alternative.size is None:
            return (1,) * self._num_parts
        found = set[tuple[int, ...] | None]()
        for operand, layout, arrival in zip(spec.inputs, alternative.inputs, arrivals, strict=True):
            if isinstance(layout, Split) and arrival.layout == layout:
                extent = operand.sizes[layout.axis]
                found.add(_units(arrival.extents, extent, alternative.size))
        if not found:
            found = {aligned_shares(alternative.size, self._weights, self._units)}
        sizes = found.pop() if len(found) == 1 else None
        return sizes if sizes is not None and min(sizes) > 0 else None

    def _cost_us(self, op: int, decision: Decision | None, arrivals: Sequence[Arrival]) -> float:
        """Return the time of an op on the device with most of it, and of its conversions."""
        work_us, row = self._work_us[op], self._row(op)
        if decision is None:
            return work_us + sum(
                self._conversion_us(op, tensor, arrival, ARRIVES_WHOLE)
                for tensor, arrival in zip(row, arrivals, strict=True)
                if arrival is not ARRIVES_WHOLE
                and (tensor is None or self._merged_for.get(tensor, op) == op)
            )
        if decision.alternative.size is not None:
            work_us = work_us * max(decision.sizes) / decision.alternative.size
        slots = zip(row, arrivals, self._stored(decision)[0], strict=True)
        return work_us + sum(self._conversion_us(op, *slot) for slot in slots)

    def _conversion_us(
        self, op: int, tensor: int | None, arrival: Arrival, wanted: Arrival
    ) -> float:
        """Return the time to bring an input of an op into a layout; inf if that is impossible."""
        if arrival is wanted:
            return 0.0
        if isinstance(wanted.layout, Partial | Own) or isinstance(arrival.layout, Own):
            return float("inf")
        is_copied = isinstance(arrival.layout, Replicated)
        if tensor is not None and is_handle(self._graph, tensor):
            for_each = is_copied and len(arrival.extents) == self._num_parts
            return 0.0 if for_each and wanted == ARRIVES_WHOLE else float("inf")
        if tensor is None or is_copied:
            return 0.0
        times = 1 if arrival is ARRIVES_WHOLE else self._num_parts
        messages = times
        is_scattered = isinstance(arrival.layout, Partial) and isinstance(wanted.layout, Split)
        if is_scattered and self._is_update[op]:
            messages = times**2  # a reduce-scatter: each device sends to each other one
        bytes_us = self._prices.us_per_byte * self._bytes[tensor]
        return float(messages * self._prices.latency_us + times * bytes_us)

    def _demand(self, op: int) -> Arrival | None:
        """Return the layout in which all consumers of an op take all its outputs.

        None if the consumers take different layouts, or if one of them is whole.
        """
        found = None
        for tensor in self._outputs(op):
            for taker in self._graph.consumers_of(tensor).tolist():
                decision = self._chosen.get(taker)
                if decision is None:
                    return None
                taken_by_slot = self._stored(decision)[0]
                for taken, each in zip(taken_by_slot, self._row(taker), strict=True):
                    if each == tensor:
                        if found not in (None, taken):
                            return None
                        found = taken
        return found

    def _supply(self, op: int, spec: OpSpec, demand: Arrival, layout: Split) -> None:
        """Let an op with whole inputs compute its outputs in the split layout of a demand."""
        for alternative in preferred_alternatives(spec, self._local):
            if set(alternative.outputs) != {layout} or alternative.size is None:
                continue
            extent = spec.outputs[0].sizes[layout.axis]
            sizes = _units(demand.extents, extent, alternative.size)
            if sizes is not None and self._can_supply(op, spec, alternative):
                self._take(op, Decision(spec, alternative, sizes))
                for after in (op, *self._graph.successors[op].tolist()):
                    self._known_us.pop(after, None)
                return

    def _can_supply(self, op: int, spec: OpSpec, alternative: Alternative) -> bool:
        """Return whether no handle would be split, and no more bytes than those of the outputs."""
        cut = self._cut(op, alternative)
        if any(is_handle(self._graph, tensor) for tensor in (*cut, *self._outputs(op))):
            return False
        sent = [tensor for tensor, layout in cut.items() if not self._is_drawn(tensor, layout)]
        num_bytes = sum(self._bytes[tensor] for tensor in sent)
        return bool(num_bytes <= sum(self._bytes[tensor] for tensor in self._outputs(op)))

    def _cut(self, op: int, alternative: Alternative) -> dict[int, Layout]:
        """Return the inputs that an op takes in slices, with their layouts."""
        return {
            tensor: layout
            for tensor, layout in zip(self._row(op), alternative.inputs, strict=True)
            if tensor is not None and isinstance(layout, Split)
        }

    def _is_drawn(self, tensor: int, layout: Layout) -> bool:
        """Return whether parts may draw the slices of a tensor, so that it need not be cut."""
        if Local.RANDOM not in self._local:
            return False
        op = int(self._graph.tensor_producer[tensor])
        spec = self._specs[op]
        ways = (
            [] if spec is None or op in self._chosen else preferred_alternatives(spec, self._local)
        )
        for way in ways:
            if set(way.outputs) == {layout}:
                cut = self._cut(op, way)
                if way.local is Local.RANDOM or (
                    cut and all(self._is_drawn(*each) for each in cut.items())
                ):
                    return True
        return False

    def _arrivals(self, op: int) -> list[Arrival]:
        arrival = self._arrival
        return [ARRIVES_WHOLE if tensor is None else arrival[tensor] for tensor in self._row(op)]

    def _stored(self, decision: Decision) -> tuple[list[Arrival], list[Arrival]]:
        """Return how the parts of an op take each input, and how they give each output."""
        if decision not in self._stored_by:
            way = decision.alternative
            operands = zip(
                (*way.inputs, *way.outputs),
                (*decision.input_extents, *decision.output_extents),
                strict=True,
            )
            whole, single = (), (1,) * len(decision.sizes)
            found = [
                self._one(layout, extents or (whole if isinstance(layout, Whole) else single))
                for layout, extents in operands
            ]
            self._stored_by[decision] = found[: len(way.inputs)], found[len(way.inputs) :]
        return self._stored_by[decision]

    def _one(self, layout: Layout, extents: tuple[int, ...]) -> Arrival:
        return self._one_of.setdefault((layout, extents), Arrival(layout, extents))

    def _row(self, op: int) -> Sequence[int | None]:
        return self._rows[op] if self._rows else ()

    def _outputs(self, op: int) -> range:
        return self._graph.tensors_of(op)


def _extent(graph: OpGraph, tensor: int, axis: int) -> int:
    shape = graph.tensor_shape[tensor] if graph.tensor_shape else None
    size = None if shape is None else shape[axis]
    if size is None:
        raise ValueError(f"tensor {tensor} has no known extent on axis {axis}")
    return size


def _units(extents: tuple[int, ...], extent: int, whole: int) -> tuple[int, ...] | None:
    """Return the units of a factor in parts of these extents; None if a part has no whole units."""
    if sum(extents) != extent or any(each * whole % extent for each in extents):
        return None
    return tuple(each * whole // extent for each in extents)
