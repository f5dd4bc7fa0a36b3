"""OpSpec: the type, attributes and operands of an op, which decide how it can be split.

Ops with equal specs do the same work, so each distinct spec is analysed and priced only once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from pesto_cli.data.graph import Shape

SMALL_CONSTANT_ELEMENTS = 16
"""TensorFlow copies constants of at most this size to every device with a consumer (`kMaxSize` in
its replicate_constants_pass.cc), so a graph of ops does not contain them."""

Value = bool | int | float | str | tuple["Value", ...]
"""A constant: a number or a text, or nested tuples of them."""

# Bytes of an element by data type. A string and a handle take what TensorFlow stores of them in the
# tensor itself.
ELEMENT_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("bool", "int8", "uint8", "qint8", "quint8"), 1),
    **dict.fromkeys(("int4", "uint4", "int2", "uint2", "float4_e2m1fn"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz"), 1),
    **dict.fromkeys(("float8_e4m3b11fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("int16", "uint16", "qint16", "quint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "qint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64", "resource", "variant"), 8),
    "complex128": 16,
    "string": 24,
}


CUTS: Mapping[str, int] = {"Slice": 0, "Split": 1, "SplitV": 0}
"""Op types that take ranges of one axis out of a tensor -> slot of the tensor."""

ALIGNMENT = 64
"""TensorFlow aligns tensors to this number of bytes (`EIGEN_MAX_ALIGN_BYTES`)."""

HANDLES = frozenset({"resource", "variant"})
"""Data types of tensors whose data is elsewhere: they are as large as one number."""


@dataclass(frozen=True)
class Operand:
    """One input or output tensor of an op.

    shape: sizes of the dimensions; None if unknown, or an open dimension. Those of the handle of a
        variable are the dimensions of the variable.
    dtype: such as `float32`.
    value: the value of the tensor if it is a small constant, as nested tuples; else None.
    on_host: whether the tensor is in host memory, also if the op runs on a GPU.
    """

    shape: Shape | None
    dtype: str | None
    value: Value | None = None
    on_host: bool = False

    @property
    def is_handle(self) -> bool:
        """Whether the data is elsewhere, as that of a variable."""
        return self.dtype in HANDLES

    @property
    def is_static(self) -> bool:
        """Whether all dimensions are known."""
        return self.shape is not None and None not in self.shape

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the dimensions of a static shape.

        Raises:
            ValueError: the shape is open.
        """
        if self.shape is None or None in self.shape:
            raise ValueError(f"shape {self.shape} is open")
        return tuple(size for size in self.shape if size is not None)

    @property
    def num_bytes(self) -> int:
        """The size in bytes of an operand with a static shape.

        Raises:
            ValueError: the shape is open, or the data type is unknown.
        """
        if self.dtype is None or self.dtype not in ELEMENT_BYTES:
            raise ValueError(f"data type {self.dtype} is unknown")
        num_elements = 1 if self.is_handle else math.prod(self.sizes)
        return num_elements * ELEMENT_BYTES[self.dtype]

    def resized(self, axis: int, size: int) -> Self:
        """Return the operand with another size of one dimension, without its value."""
        shape = (*self.sizes[:axis], size, *self.sizes[axis + 1 :])
        return type(self)(shape, self.dtype, None, self.on_host)


Taken = tuple[int, int]
"""(op, output number) in a body; (ARGUMENT, slot) is what the call takes in a slot."""
ARGUMENT = -1


@dataclass(frozen=True)
class BodyOp:
    """An op of a body. inputs: what it takes, by slot."""

    spec: "OpSpec"
    inputs: tuple[Taken, ...]


@dataclass(frozen=True)
class Body:
    """The ops of the function that a call runs; none of them has a state.

    ops: in an order in which each op comes after those that it takes results of.
    outputs: for each output of the call, what it is in the body.
    """

    ops: tuple[BodyOp, ...]
    outputs: tuple[Taken, ...]


@dataclass(frozen=True)
class OpSpec:
    """The type, attributes and operands of an op.

    attributes: pairs of name and value, by name; a data type is its name, such as `float32`.
        Attributes that begin with an underscore or name a resource (`shared_name`), functions and
        the value of a Const are left out.
    inputs, outputs: by slot and by output number. Control inputs are no operands.
    is_stateful: whether the op has an effect or a state in addition to its outputs. That of a call
        is unknown if its body is, and counts.
    body: of a call; None for other ops, and if its ops have a state, open shapes, or are too many.
    """

    type: str
    attributes: tuple[tuple[str, Value], ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    is_stateful: bool = False
    body: Body | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        key = (self.type, self.attributes, self.inputs, self.outputs, self.is_stateful, self.body)
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def attribute(self) -> Mapping[str, Value]:
        """The value of each attribute by name."""
        return dict(self.attributes)

    @cached_property
    def is_static(self) -> bool:
        """Whether all operands have static shapes."""
        return all(operand.is_static for operand in (*self.inputs, *self.outputs))

    @property
    def takes_handle(self) -> bool:
        """Whether an input is a handle, such as that of a variable."""
        return any(operand.is_handle for operand in self.inputs)

    @property
    def num_bytes(self) -> int:
        """The bytes that the op reads and writes, without operands of open shapes.

        A Slice reads only what it returns, and other ops all their inputs.

        Raises:
            ValueError: a data type is unknown.
        """
        inputs = self.outputs if self.type == "Slice" else self.inputs
        operands = (*inputs, *self.outputs)
        return sum(operand.num_bytes for operand in operands if operand.is_static)

    @cached_property
    def shares_memory(self) -> bool:
        """Whether the outputs are in the memory of the input, so that the op copies nothing.

        An op of `CUTS` shares memory if it cuts only the first dimension, and if the size of a row
        is a multiple of `ALIGNMENT` (`IsInnerDimsSizeAligned` in TensorFlow's ops_util.h).
        """
        if self.type not in CUTS or not self.is_static:
            return False
        tensor = self.inputs[CUTS[self.type]]
        if not tensor.sizes or any(out.sizes[1:] != tensor.sizes[1:] for out in self.outputs):
            return False
        return tensor.resized(0, 1).num_bytes % ALIGNMENT == 0

    @property
    def kernels(self) -> tuple[Self, ...]:
        """The ops that a call runs, also in calls within its body; of another op, itself."""
        if self.body is None:
            return (self,)
        return tuple(each for op in self.body.ops for each in op.spec.kernels)  # type: ignore[misc]

    def with_attributes(self, **values: Value) -> Self:
        """Return the spec with other values of attributes."""
        return replace(self, attributes=tuple(sorted((dict(self.attributes) | values).items())))
