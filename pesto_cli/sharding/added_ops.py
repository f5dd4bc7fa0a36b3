"""Specs of the ops that convert tensors between layouts."""

from collections.abc import Sequence
from functools import lru_cache

from pesto_cli.data.specs import Operand, OpSpec, Value
from pesto_cli.sharding.layouts import Reduction

COMBINING = {
    Reduction.SUM: "AddN",
    Reduction.MIN: "Minimum",
    Reduction.MAX: "Maximum",
    Reduction.ALL: "LogicalAnd",
    Reduction.ANY: "LogicalOr",
}
"""Op type that combines partial tensors: AddN takes any number of tensors, the others two."""
FORWARDING = frozenset({"Identity", "Reshape", "ExpandDims", "Squeeze"})
"""Types of added ops whose output is in the memory of their first input."""


def number(value: Value, *, dtype: str = "int32") -> Operand:
    """Return the operand of a constant in host memory."""
    shape = (len(value),) if isinstance(value, tuple) else ()
    return Operand(shape, dtype, value, on_host=True)


@lru_cache(maxsize=2**14)
def split(tensor: Operand, axis: int, extents: tuple[int, ...]) -> OpSpec:
    """Return the op that cuts a tensor along an axis into parts of these extents."""
    pieces = tuple(tensor.resized(axis, extent) for extent in extents)
    if len(set(extents)) == 1:
        attributes = _attributes(T=tensor.dtype, num_split=len(extents))
        return OpSpec("Split", attributes, (number(axis), _data(tensor)), pieces)
    attributes = _attributes(T=tensor.dtype, Tlen="int32", num_split=len(extents))
    return OpSpec("SplitV", attributes, (_data(tensor), number(extents), number(axis)), pieces)


@lru_cache(maxsize=2**14)
def sliced(tensor: Operand, axis: int, begin: int, extent: int) -> OpSpec:
    """Return the op that takes a range of an axis out of a tensor."""
    piece = tensor.resized(axis, extent)
    start = tuple(begin if each == axis else 0 for each in range(len(tensor.sizes)))
    inputs = (_data(tensor), number(start), number(piece.sizes))
    return OpSpec("Slice", _attributes(Index="int32", T=tensor.dtype), inputs, (piece,))


@lru_cache(maxsize=2**14)
def concat(tensor: Operand, axis: int, extents: tuple[int, ...]) -> OpSpec:
    """Return the op that joins parts along an axis."""
    pieces = tuple(tensor.resized(axis, extent) for extent in extents)
    attributes = _attributes(N=len(extents), T=tensor.dtype, Tidx="int32")
    return OpSpec("ConcatV2", attributes, (*pieces, number(axis)), (_data(tensor),))


@lru_cache(maxsize=2**14)
def combined(tensor: Operand, reduction: Reduction, num_parts: int) -> OpSpec:
    """Return the op that combines partial tensors; all but a sum take two."""
    data = _data(tensor)
    if reduction is Reduction.SUM:
        attributes = _attributes(N=num_parts, T=tensor.dtype)
        return OpSpec("AddN", attributes, (data,) * num_parts, (data,))
    attributes = () if tensor.dtype == "bool" else _attributes(T=tensor.dtype)
    return OpSpec(COMBINING[reduction], attributes, (data, data), (data,))


@lru_cache(maxsize=2**14)
def copied(tensor: Operand) -> OpSpec:
    """Return the op that passes a tensor on."""
    return OpSpec("Identity", _attributes(T=tensor.dtype), (_data(tensor),), (_data(tensor),))


@lru_cache(maxsize=2**14)
def reshaped(tensor: Operand, sizes: tuple[int, ...]) -> OpSpec:
    """Return the op that has the elements of a tensor in another shape."""
    output = Operand(sizes, tensor.dtype)
    return OpSpec(
        "Reshape",
        _attributes(T=tensor.dtype, Tshape="int32"),
        (_data(tensor), number(sizes)),
        (output,),
    )


@lru_cache(maxsize=2**14)
def bundled(tensors: Sequence[Operand]) -> OpSpec:
    """Return the op that has several tensors as its outputs."""
    data = tuple(map(_data, tensors))
    return OpSpec("IdentityN", _attributes(T=tuple(str(each.dtype) for each in data)), data, data)


def constant(operand: Operand) -> OpSpec:
    """Return the op that has the value of an operand as its output."""
    return OpSpec("Const", _attributes(dtype=operand.dtype), (), (operand,))


JOIN = OpSpec("NoOp", (), (), ())
"""The op that ends when all its control inputs have ended."""


def _data(tensor: Operand) -> Operand:
    return Operand(tensor.shape, tensor.dtype)


def _attributes(**values: Value | None) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted((name, value) for name, value in values.items() if value is not None))
