"""Builds programs op by op: each op returns its outputs, which are inputs of others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pesto_cli.data.specs import Operand, OpSpec, Value
from pesto_cli.sharding.alternative import FromOp, FromSlot, PartOp, Program, Source


@dataclass(frozen=True)
class Tensor:
    """An input or output of an op of a program: where it comes from, and what it is."""

    source: Source
    operand: Operand

    @property
    def from_op(self) -> FromOp:
        """The output of the op that computes the tensor.

        Raises:
            ValueError: the tensor is an input of the program.
        """
        if not isinstance(self.source, FromOp):
            raise ValueError(f"{self.source} is not the output of an op")
        return self.source


def constant(value: Value, dtype: str | None, on_host: bool = False) -> Tensor:
    """Return a small constant. value: a number, or nested tuples of numbers."""
    return Tensor(None, Operand(_shape_of(value), dtype, value, on_host))


def taken(spec: OpSpec, slot: int) -> Tensor:
    """Return an input of the op or part that `spec` describes."""
    operand = spec.inputs[slot]
    return Tensor(FromSlot(slot) if operand.value is None else None, operand)


class ProgramBuilder:
    """Collects the ops of a program.

    `name` is a part of the name of a node, without spaces. `part` is the part that the op belongs
    to; None if it serves all parts.
    """

    def __init__(self) -> None:
        self._ops: list[PartOp] = []

    def add(
        self, name: str, spec: OpSpec, inputs: Sequence[Tensor], part: int | None = None
    ) -> tuple[Tensor, ...]:
        """Add an op with the type, attributes and outputs of a spec; return its outputs."""
        own = replace(spec, inputs=tuple(each.operand for each in inputs))
        self._ops.append(PartOp(part, own, tuple(each.source for each in inputs), name))
        number = len(self._ops) - 1
        return tuple(
            Tensor(FromOp(number, output), operand) for output, operand in enumerate(spec.outputs)
        )

    def elementwise(
        self, name: str, op_type: str, *inputs: Tensor, part: int | None = None
    ) -> Tensor:
        """Add an op with broadcasting."""
        sizes = np.broadcast_shapes(*(each.operand.sizes for each in inputs))
        spec = OpSpec(op_type, _attributes(inputs[0]), (), (_like(inputs[0], sizes),))
        return self.add(name, spec, inputs, part)[0]

    def times(self, name: str, tensor: Tensor, factor: Value) -> Tensor:
        """Add the product of a tensor and a constant."""
        return self.elementwise(name, "Mul", tensor, constant(factor, tensor.operand.dtype))

    def sum_of(self, name: str, terms: Sequence[Tensor]) -> Tensor:
        """Add the sum of tensors of one shape."""
        spec = OpSpec("AddN", _attributes(terms[0], N=len(terms)), (), (terms[0].operand,))
        return self.add(name, spec, terms)[0]

    def stack(self, name: str, rows: Sequence[Tensor]) -> Tensor:
        """Add the tensor `[num_rows, ...]` of tensors of one shape."""
        output = _like(rows[0], (len(rows), *rows[0].operand.sizes))
        spec = OpSpec("Pack", _attributes(rows[0], N=len(rows), axis=0), (), (output,))
        return self.add(name, spec, rows)[0]

    def reduced(
        self,
        name: str,
        op_type: str,
        tensor: Tensor,
        axes: tuple[int, ...],
        part: int | None = None,
    ) -> Tensor:
        """Add the Sum or Mean over some axes, which are removed."""
        kept = (size for axis, size in enumerate(tensor.operand.sizes) if axis not in axes)
        attributes = _attributes(tensor, Tidx="int32", keep_dims=False)
        spec = OpSpec(op_type, attributes, (), (_like(tensor, tuple(kept)),))
        return self.add(name, spec, (tensor, constant(axes, "int32", on_host=True)), part)[0]

    def cast(self, name: str, tensor: Tensor, dtype: str | None, part: int | None = None) -> Tensor:
        """Add a tensor as another data type; the tensor itself if it has that type."""
        if tensor.operand.dtype == dtype:
            return tensor
        attributes = (
            ("DstT", str(dtype)),
            ("SrcT", str(tensor.operand.dtype)),
            ("Truncate", False),
        )
        output = replace(tensor.operand, dtype=dtype, value=None)
        return self.add(name, OpSpec("Cast", attributes, (), (output,)), (tensor,), part)[0]

    def reshaped(
        self, name: str, tensor: Tensor, sizes: tuple[int, ...], part: int | None = None
    ) -> Tensor:
        """Add the elements of a tensor in another shape."""
        spec = OpSpec("Reshape", _attributes(tensor, Tshape="int32"), (), (_like(tensor, sizes),))
        return self.add(name, spec, (tensor, constant(sizes, "int32", on_host=True)), part)[0]

    def program(self, outputs: Sequence[Sequence[Tensor]]) -> Program:
        """Return the program. outputs: the pieces of each output of the op that is split."""
        pieces = tuple(tuple(piece.from_op for piece in pieces) for pieces in outputs)
        return Program(tuple(self._ops), pieces)


def _attributes(tensor: Tensor, **others: Value) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted({"T": str(tensor.operand.dtype), **others}.items()))


def _like(tensor: Tensor, sizes: tuple[int, ...]) -> Operand:
    return Operand(sizes, tensor.operand.dtype)


def _shape_of(value: Value) -> tuple[int, ...]:
    return (len(value), *_shape_of(value[0])) if isinstance(value, tuple) else ()
