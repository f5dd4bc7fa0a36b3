"""The first axis of a variable, along which ops look up and update rows.

Each part has some rows of the variable, and takes all indices. If an index names a row of another
part, the part uses its nearest own row instead, and replaces the row that it found, or the row that
it adds, by zeros. So lookups are partial sums, and updates change no row of another part.
"""

from collections.abc import Iterator
from dataclasses import replace

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.alternative import Alternative, FromSlot, Program
from pesto_cli.sharding.layouts import SUM, WHOLE, Split
from pesto_cli.sharding.program_builder import ProgramBuilder, Tensor, constant, taken
from pesto_cli.sharding.rules.open_sums import NUMBERS


def looked_up_rows(spec: OpSpec, name: str) -> Iterator[Alternative]:
    """Return the alternative of a ResourceGather; inputs: handle, indices."""
    table, rows = spec.inputs[0], spec.outputs[0]
    if table.sizes and rows.dtype in NUMBERS and not spec.attribute.get("batch_dims"):
        inputs = (Split(0), WHOLE)
        yield Alternative(name, table.sizes[0], inputs, (SUM,), program=_lookups)


def added_rows(spec: OpSpec, name: str) -> Iterator[Alternative]:
    """Return the alternative of an op that adds rows; inputs: handle, indices, rows."""
    table, _, rows = spec.inputs
    if table.sizes and rows.sizes:
        inputs = (Split(0), WHOLE, WHOLE)
        yield Alternative(name, table.sizes[0], inputs, (), program=_additions)


def _lookups(spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    builder, begin, found = ProgramBuilder(), 0, []
    for part, size in enumerate(sizes):
        place, is_own = _own_rows(builder, taken(spec, 1), begin, size, part)
        (rows,) = builder.add("", spec, (_piece(spec, size), place), part)
        found.append(_own(builder, rows, is_own, part))
        begin += size
    return builder.program([found])


def _additions(spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    builder, begin = ProgramBuilder(), 0
    for part, size in enumerate(sizes):
        place, is_own = _own_rows(builder, taken(spec, 1), begin, size, part)
        rows = _own(builder, taken(spec, 2), is_own, part)
        builder.add("", spec, (_piece(spec, size), place, rows), part)
        begin += size
    return builder.program([])


def _piece(spec: OpSpec, size: int) -> Tensor:
    return Tensor(FromSlot(0), spec.inputs[0].resized(0, size))


def _own_rows(
    builder: ProgramBuilder, indices: Tensor, begin: int, size: int, part: int
) -> tuple[Tensor, Tensor]:
    """Return the nearest own row of each index, and whether it is the row that is meant."""
    dtype = indices.operand.dtype
    first, zero, last = (constant(value, dtype) for value in (begin, 0, size - 1))
    place = builder.elementwise("place", "Sub", indices, first, part=part)
    least = builder.elementwise("at_least_0", "Maximum", place, zero, part=part)
    nearest = builder.elementwise("nearest", "Minimum", least, last, part=part)
    attributes = (("T", str(dtype)), ("incompatible_shape_error", True))
    is_own = OpSpec("Equal", attributes, (), (Operand(nearest.operand.sizes, "bool"),))
    return nearest, builder.add("is_own", is_own, (place, nearest), part)[0]


def _own(builder: ProgramBuilder, rows: Tensor, is_own: Tensor, part: int) -> Tensor:
    """Return rows with 0 in place of those that are not own ones."""
    sizes = is_own.operand.sizes
    ones = (1,) * (len(rows.operand.sizes) - len(sizes))
    wide = builder.reshaped("is_own_row", is_own, (*sizes, *ones), part) if ones else is_own
    dtype = rows.operand.dtype
    zero = constant(0.0 if str(dtype).startswith(("float", "bfloat")) else 0, dtype)
    chosen = OpSpec("SelectV2", (("T", str(dtype)),), (), (replace(rows.operand, value=None),))
    return builder.add("own_rows", chosen, (wide, rows, zero), part)[0]
