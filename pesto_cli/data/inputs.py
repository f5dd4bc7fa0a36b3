"""The inputs of every op in order; strategies that rewrite graphs need these slots."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from pesto_cli.data.columns import IntArray, check_indices, check_length, whole_numbers
from pesto_cli.errors import BadInputError

NO_TENSOR = -1


@dataclass(frozen=True, eq=False)
class Inputs:
    """The data inputs of every op, in compressed rows: `tensors[offsets[i]:offsets[i + 1]]`.

    The position in a row is the slot of an input. A tensor that an op takes twice appears twice.

    offsets: `[num_ops + 1]`.
    tensors: `[num_inputs]`, tensor indices. `NO_TENSOR` is an input that is no tensor of the
        graph, such as a small constant that is copied to the device of each consumer.
    """

    offsets: IntArray
    tensors: IntArray

    @classmethod
    def build(cls, rows: Sequence[Sequence[int | None]]) -> Self:
        """Build from one row of tensor indices for each op; None becomes `NO_TENSOR`.

        Raises:
            BadInputError: a number does not fit into 64 bits.
        """
        flat = [NO_TENSOR if tensor is None else tensor for row in rows for tensor in row]
        return cls.of_lengths([len(row) for row in rows], whole_numbers("ops.inputs", flat))

    @classmethod
    def of_lengths(cls, lengths: Sequence[int], tensors: ArrayLike) -> Self:
        """Build from the number of inputs of each op, and the tensors of all of them."""
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(offsets, np.asarray(tensors, dtype=np.int64))

    def __getitem__(self, op: int) -> IntArray:
        """Return the inputs of one op, by slot."""
        return self.tensors[self.offsets[op] : self.offsets[op + 1]]

    @cached_property
    def op(self) -> IntArray:
        """`[num_inputs]`: the op that takes each input."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @cached_property
    def slot(self) -> IntArray:
        """`[num_inputs]`: the slot of each input."""
        return np.arange(len(self.tensors)) - self.offsets[self.op]

    def rows(self) -> Iterator[list[int | None]]:
        """Yield one row for each op, as `build` takes them."""
        flat = [None if tensor < 0 else tensor for tensor in self.tensors.tolist()]
        bounds = self.offsets.tolist()
        return (flat[first:last] for first, last in pairwise(bounds))

    def renumbered(self, number: IntArray) -> Self:
        """Return the same inputs after tensor i was renumbered to `number[i]`.

        Raises:
            BadInputError: an index is not that of a tensor.
        """
        check_indices("ops.inputs", self.tensors, NO_TENSOR, len(number), "tensor")
        return type(self)(self.offsets, np.append(number, NO_TENSOR)[self.tensors])

    def check(
        self, names: Sequence[str], consumers: IntArray, consumer_tensor: IntArray, num_tensors: int
    ) -> None:
        """Check that the inputs and the consumers of tensors describe the same edges.

        Args:
            names: `[num_ops]`, names of the ops.
            consumers: op indices, ascending and unique within a tensor.
            consumer_tensor: the tensor of each entry of `consumers`, ascending.
            num_tensors: number of tensors of the graph.

        Raises:
            BadInputError: an op has a tensor only in its inputs, or only as a consumer; or a length
                or an index is wrong.
        """
        check_length("ops.inputs", len(self.offsets) - 1, len(names))
        check_indices("ops.inputs", self.tensors, NO_TENSOR, num_tensors, "tensor")
        is_tensor = self.tensors != NO_TENSOR
        taken = np.sort(self.tensors[is_tensor] * len(names) + self.op[is_tensor])
        taken = taken[np.diff(taken, prepend=-1) > 0]
        listed = consumer_tensor * len(names) + consumers
        if not np.array_equal(taken, listed):
            differing = np.setxor1d(taken, listed, assume_unique=True)
            tensor, op = divmod(int(differing[0]), len(names))
            one, other = "ops.inputs", "tensors.consumers"
            if differing[0] in listed:
                one, other = other, one
            raise BadInputError(
                f"op {names[op]!r} takes tensor {tensor} in {one}, but not in {other}; the same "
                "tensors were expected in both: correct one of them, or leave out ops.inputs."
            )
