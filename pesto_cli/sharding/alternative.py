"""Alternatives: the ways in which an op can be split, and the ops that compute its parts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from pesto_cli.data.plan import Local
from pesto_cli.data.specs import Operand, OpSpec, Value
from pesto_cli.sharding.layouts import Layout, Own, Partial, Replicated, Split


class FromSlot(NamedTuple):
    """An input of a part op: the piece of input `slot` of the split op that belongs to the part."""

    slot: int


class FromOp(NamedTuple):
    """An input of a part op: an output of another op of the same program."""

    op: int
    output: int = 0


Source = FromSlot | FromOp | None
"""None: a small constant; its value is that of the operand in the spec."""


class PartOp(NamedTuple):
    """One op of a program.

    part: index of the part that the op belongs to; None if the op serves all parts.
    name: what the op computes, such as `share`; empty for an op with the type of the op that is
        split. Names are unique in a part, and among the ops that serve all parts.
    inputs: by slot of `spec`.
    """

    part: int | None
    spec: OpSpec
    inputs: tuple[Source, ...]
    name: str = ""


@dataclass(frozen=True)
class Program:
    """The ops that compute the parts of an op.

    ops: in an order in which inputs come before the ops that take them.
    outputs: for each output of the op that is split, its pieces: one for each part, or a single one
        if the output is whole.
    """

    ops: tuple[PartOp, ...]
    outputs: tuple[tuple[FromOp, ...], ...]


@dataclass(frozen=True)
class Alternative:
    """One way to split an op.

    name: unique among the alternatives of an op, such as `rows`.
    size: the extent of the factor that is split, which is the largest number of parts; None if any
        number of parts is possible. Where an input or output is split along an axis of size n, a
        part with s of `size` units has n * s / size of that axis.
    inputs, outputs: the layouts of the operands.
    resized: (slot, position) pairs: position `position` of the constant in input `slot` is a size
        that is scaled like an axis (the shape of a Reshape). A scalar constant has position -1.
    resized_attributes: the same for attributes that are shapes: (name, position) pairs.
    program: returns the ops for given sizes of the parts; by default one op for each part.
    local: what the parts compute in another way than the whole op; None if they compute the same.
    """

    name: str
    size: int | None
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    resized: tuple[tuple[int, int], ...] = ()
    resized_attributes: tuple[tuple[str, int], ...] = ()
    program: Callable[["OpSpec", "Alternative", tuple[int, ...]], Program] = field(
        default=lambda spec, alternative, sizes: one_op_each(spec, alternative, sizes)
    )
    local: Local | None = None

    def equal_sizes(self, num_parts: int) -> tuple[int, ...]:
        """Return sizes of `num_parts` parts that differ by at most one unit."""
        return (1,) * num_parts if self.size is None else shares_of(self.size, [1.0] * num_parts)


Rule = Callable[[OpSpec], Iterable[Alternative]]
"""Returns the ways in which an op with static shapes can be split; none if it stays whole.

Alternatives with fewer than two units, or that scale a constant with an unknown value, are dropped.
"""


def one_op_each(spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    """Return a program with one op for each part, of the type of the op that is split.

    sizes: `[num_parts]`, units of the factor; their sum is `alternative.size` unless it is None.
    """
    specs = {size: part_spec(spec, alternative, size) for size in {*sizes}}
    taken = {size: sources(each) for size, each in specs.items()}
    ops = tuple(PartOp(part, specs[size], taken[size]) for part, size in enumerate(sizes))
    return Program(ops, tuple(_of_each(len(sizes), output) for output in range(len(spec.outputs))))


@lru_cache(maxsize=2**14)
def has_main_op(spec: OpSpec, alternative: Alternative) -> bool:
    """Return whether parts have ops of the type of the op that is split, and not only added ops."""
    size = alternative.size
    if alternative.program is Alternative.program or size is None or size < 2:
        return True
    program = alternative.program(spec, alternative, (size // 2, size - size // 2))
    return any(not op.name for op in program.ops)


@lru_cache
def _of_each(num_parts: int, output: int) -> tuple[FromOp, ...]:
    """Return an output of each of the first ops of a program."""
    return tuple(FromOp(part, output) for part in range(num_parts))


def part_spec(spec: OpSpec, alternative: Alternative, size: int) -> OpSpec:
    """Return the spec of a part with `size` units of the factor."""
    whole = alternative.size
    inputs = [
        _part_of(operand, layout, size, whole)
        for operand, layout in zip(spec.inputs, alternative.inputs, strict=True)
    ]
    outputs = [
        _part_of(operand, layout, size, whole)
        for operand, layout in zip(spec.outputs, alternative.outputs, strict=True)
    ]
    for slot, position in alternative.resized:
        value = inputs[slot].value
        inputs[slot] = replace(inputs[slot], value=_scaled_at(value, position, size, whole))
    taken, given = tuple(inputs), tuple(outputs)
    if (taken, given) == (spec.inputs, spec.outputs):
        part = spec
    else:
        part = OpSpec(spec.type, spec.attributes, taken, given, spec.is_stateful, spec.body)
    changed = {
        name: _scaled_at(spec.attribute[name], position, size, whole)
        for name, position in alternative.resized_attributes
    }
    return part.with_attributes(**changed) if changed else part


def sources(part: OpSpec) -> tuple[Source, ...]:
    """Return the inputs of a part: small constants stay in the spec, others come from the slot."""
    return tuple(
        FromSlot(slot) if operand.value is None else None
        for slot, operand in enumerate(part.inputs)
    )


def _part_of(operand: Operand, layout: Layout, size: int, whole: int | None) -> Operand:
    if isinstance(layout, Split):
        return operand.resized(layout.axis, scaled(operand.sizes[layout.axis], size, whole))
    if operand.value is not None and isinstance(layout, Partial | Replicated | Own):
        return replace(operand, value=None)
    return operand


def shares_of(extent: int, weights: Sequence[float], least: int = 0) -> tuple[int, ...]:
    """Return extents of parts in proportion to weights; they add up to `extent`.

    The largest extent relative to its weight is as small as possible (method of D'Hondt), if each
    part has at least `least`.
    """
    return _shares_of(extent, tuple(weights), least)


@lru_cache(maxsize=2**14)
def _shares_of(extent: int, weights: tuple[float, ...], least: int) -> tuple[int, ...]:
    total, parts = sum(weights), range(len(weights))
    shares = [max(least, int(extent * weight / total)) for weight in weights]
    for _ in range(sum(shares) - extent):
        above = (part for part in parts if shares[part] > least)
        shares[max(above, key=lambda part: shares[part] / weights[part])] -= 1
    for _ in range(extent - sum(shares)):
        shares[min(parts, key=lambda part: (shares[part] + 1) / weights[part])] += 1
    return tuple(shares)


def aligned_shares(extent: int, weights: Sequence[float], units: Sequence[int]) -> tuple[int, ...]:
    """Return extents of parts in proportion to weights, with their borders between units.

    The first of `units` that divides the extent counts: 46,080 rows of 720 sentences are cut
    between sentences, so that parts of different ops have the same sentences.
    """
    return _aligned_shares(extent, tuple(weights), tuple(units))


@lru_cache(maxsize=2**14)
def _aligned_shares(
    extent: int, weights: tuple[float, ...], units: tuple[int, ...]
) -> tuple[int, ...]:
    unit = next((unit for unit in units if unit >= len(weights) and extent % unit == 0), extent)
    return tuple(share * (extent // unit) for share in shares_of(unit, weights))


@lru_cache(maxsize=2**14)
def scaled_extents(extent: int, sizes: tuple[int, ...], whole: int | None) -> tuple[int, ...]:
    """Return the extents of all parts on an axis; see `scaled`."""
    return tuple(scaled(extent, size, whole) for size in sizes)


def scaled(extent: int, size: int, whole: int | None) -> int:
    """Return the extent of a part on an axis: `extent * size / whole`, which is a whole number."""
    if whole is None or extent * size % whole:
        raise ValueError(f"{extent} * {size} / {whole} is not a whole number")
    return extent * size // whole


def _scaled_at(value: Value | None, position: int, size: int, whole: int | None) -> Value:
    if position < 0 and isinstance(value, int):
        return scaled(value, size, whole)
    if not isinstance(value, tuple):
        raise ValueError(f"{value} has no position {position}")
    extent = value[position]
    if not isinstance(extent, int):
        raise ValueError(f"{extent} is not a size")
    if extent < 0:  # -1 in the shape of a Reshape: the size follows from the others
        return value
    return (*value[:position], scaled(extent, size, whole), *value[position + 1 :])
