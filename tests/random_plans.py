"""Random plans that fit a step: random alternatives with random sizes, and propagated ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Role
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.specs import OpSpec
from pesto_cli.graphdef.op_specs import op_specs
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.sharding.alternative import Alternative, scaled
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.layouts import WHOLE, Layout, Partial, Split
from pesto_cli.sharding.propagation import Prices, propagate
from pesto_cli.sharding.rules import alternatives
from pesto_cli.sharding.variables import variable_decisions

NUMBERS = (2, 3, 4)
FINEST = 8
"""No part has less than a part of this many: the profiles of tests price 2, 4 and 8 parts."""

Row = Sequence[int | None]
Specs = Sequence[OpSpec | None]


@dataclass(frozen=True)
class Parts:
    """How a tensor is computed: layout, number of parts, their extents if it is split."""

    layout: Layout = WHOLE
    number: int = 1
    extents: tuple[int, ...] = ()


def specs_of(step: StepGraph) -> list[OpSpec | None]:
    """Return the spec of each op of a step."""
    specs, spec_of = op_specs(step)
    return [None if index < 0 else specs[index] for index in spec_of.tolist()]


def random_plan(graph: OpGraph, specs: Specs, seed: int) -> Plan:
    """Return a plan in which about half of the ops that can be are split, each in a random way.

    With a probability, which is random too, an op keeps the layout of one of its inputs.
    """
    rng = np.random.default_rng(seed)
    share, kept = rng.uniform(0.3, 1.0), rng.uniform(0.2, 1.0)
    parts = [Parts()] * graph.num_tensors
    decided = random_variables(graph, specs, rng)
    choices = {}
    for op in graph.topological_order.tolist():
        spec = specs[op]
        if op in decided:
            way = decided[op].alternative, decided[op].sizes
            choices[graph.names[op]] = Choice(way[0].name, way[1])
            _record(parts, graph, op, *way)
            continue
        if spec is None or graph.inputs is None or rng.random() > share:
            continue
        row = [Parts() if t < 0 else parts[t] for t in graph.inputs[op].tolist()]
        is_known = [t < 0 for t in graph.inputs[op].tolist()]
        ways = list(_ways(spec, row, is_known, rng))
        matching = [way for way in ways if _matches(spec, *way, row)]
        if matching and rng.random() < kept:
            ways = matching
        if ways:
            alternative, sizes = ways[rng.integers(len(ways))]
            choices[graph.names[op]] = Choice(alternative.name, sizes)
            _record(parts, graph, op, alternative, sizes)
    return Plan(choices, _hosts(rng), _bucket_bytes(rng))


def random_variables(
    graph: OpGraph, specs: Specs, rng: np.random.Generator
) -> Mapping[int, Decision]:
    """Return decisions that split or mirror a random share of the variables."""
    share = rng.choice([0.0, rng.uniform()])
    decided: dict[int, Decision] = {}
    for op in np.flatnonzero(np.array(graph.types) == "VarHandleOp").tolist():
        spec = specs[op]
        ways = [] if spec is None else alternatives(spec)
        if op in decided or not ways or rng.random() > share:
            continue
        way, number = ways[rng.integers(len(ways))], int(rng.choice(NUMBERS))
        if way.size is not None and way.size < number:
            continue
        sizes = (1,) * number if way.size is None else _random_sizes(way.size, number, rng)
        found = variable_decisions(graph, specs, op, way.name, sizes)
        if found is not None and not found.keys() & decided.keys():
            decided.update(found)
    return decided


def _record(
    parts: list[Parts], graph: OpGraph, op: int, alternative: Alternative, sizes: tuple[int, ...]
) -> None:
    """Record how the outputs of an op are computed."""
    for tensor, layout in zip(graph.tensors_of(op), alternative.outputs, strict=True):
        parts[tensor] = _parts(graph.tensor_shape[tensor], layout, alternative, sizes)


def propagated_plan(graph: OpGraph, specs: Specs, seed: int) -> Plan:
    """Return the plan that follows from splitting the inputs of a step along one of their extents.

    The work of ops, the relative sizes of the parts and the price of transfers are random.
    """
    rng = np.random.default_rng(seed)
    seeds = list(_seeds(graph))
    if not seeds:
        return random_plan(graph, specs, seed)
    number = int(rng.choice(NUMBERS))
    weights = [1.0] * number if rng.random() < 0.5 else rng.uniform(1, 2, number).tolist()
    prices = Prices(rng.uniform(1, 100, graph.num_ops), 1e-4, float(rng.choice([0.0, 10.0])))
    chosen = seeds[rng.integers(len(seeds))]
    chosen = {tensor: axis for tensor, axis in chosen.items() if _extent(graph, tensor, axis) >= 6}
    fixed = random_variables(graph, specs, rng)
    plan = propagate(graph, specs, chosen or seeds[0], weights, prices, fixed).plan
    return Plan(plan.choices, _hosts(rng), _bucket_bytes(rng))


def _ways(
    spec: OpSpec, row: Sequence[Parts], is_known: Sequence[bool], rng: np.random.Generator
) -> Iterator[tuple[Alternative, tuple[int, ...]]]:
    """Yield the alternatives that are possible with these inputs, each with sizes of parts."""
    if any(operand.is_handle for operand in spec.outputs):
        return
    for alternative in alternatives(spec):
        if any(
            operand.is_handle and (parts.layout != WHOLE or layout != WHOLE)
            for operand, layout, parts in zip(spec.inputs, alternative.inputs, row, strict=True)
        ):
            continue
        summed = [
            (parts.layout == layout and not known, parts.number)
            for parts, layout, known in zip(row, alternative.inputs, is_known, strict=True)
            if isinstance(layout, Partial)
        ]
        numbers = {number for _, number in summed} or {int(rng.choice(NUMBERS))}
        if all(fits for fits, _ in summed) and len(numbers) == 1:
            yield from _sizes(spec, alternative, row, numbers.pop(), rng)


def _sizes(
    spec: OpSpec,
    alternative: Alternative,
    row: Sequence[Parts],
    number: int,
    rng: np.random.Generator,
) -> Iterator[tuple[Alternative, tuple[int, ...]]]:
    if alternative.size is None:
        yield alternative, (1,) * number
        return
    for operand, layout, parts in zip(spec.inputs, alternative.inputs, row, strict=True):
        if isinstance(layout, Split) and parts.layout == layout:
            extent = operand.sizes[layout.axis]
            if all(each * alternative.size % extent == 0 for each in parts.extents):
                yield alternative, tuple(e * alternative.size // extent for e in parts.extents)
                return
    if number <= alternative.size:
        yield alternative, _random_sizes(alternative.size, number, rng)


def _random_sizes(total: int, number: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Return sizes that add up to a total, each at least an eighth of it."""
    least = max(total // FINEST, 1)
    free = total - number * least
    if rng.random() < 0.3:
        ends = np.arange(1, number) * free // number
    else:
        ends = np.sort(rng.integers(0, free + 1, number - 1))
    return tuple((np.diff([0, *ends.tolist(), free]) + least).tolist())


def _matches(
    spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...], row: Sequence[Parts]
) -> bool:
    """Return whether an op takes one of its inputs as it is computed, in parts."""
    return any(
        found.layout != WHOLE and found == _parts(operand.shape, layout, alternative, sizes)
        for operand, layout, found in zip(spec.inputs, alternative.inputs, row, strict=True)
    )


def _parts(
    shape: tuple[int | None, ...] | None,
    layout: Layout,
    alternative: Alternative,
    sizes: tuple[int, ...],
) -> Parts:
    if isinstance(layout, Split) and shape:
        extent = shape[layout.axis] or 0
        extents = tuple(scaled(extent, size, alternative.size) for size in sizes)
        return Parts(layout, len(sizes), extents)
    return Parts() if layout == WHOLE else Parts(layout, len(sizes))


def _seeds(graph: OpGraph) -> Iterator[dict[int, int]]:
    """Yield for each extent of an input of the step: {tensor: axis with that extent}."""
    feeds = np.flatnonzero(graph.labels.has_role(Role.FEED)).tolist()
    shapes = {int(graph.op_tensors[op]): graph.tensor_shape[graph.op_tensors[op]] for op in feeds}
    for extent in sorted({size for shape in shapes.values() for size in shape or () if size}):
        found = {t: shape.index(extent) for t, shape in shapes.items() if shape and extent in shape}
        if extent >= max(NUMBERS):
            yield found


def _extent(graph: OpGraph, tensor: int, axis: int) -> int:
    shape = graph.tensor_shape[tensor]
    return 0 if shape is None else shape[axis] or 0


def _bucket_bytes(rng: np.random.Generator) -> int:
    """Return the size of buckets of gradients, or 0."""
    return int(rng.choice([0, 2**6, 2**20]))


def _hosts(rng: np.random.Generator) -> tuple[int, ...]:
    """Return the hosts of parts, in a third of the plans."""
    layouts = [(), (), (), (), (0, 0, 1, 1), (0, 1, 0, 1)]
    return tuple(layouts[rng.integers(len(layouts))])
