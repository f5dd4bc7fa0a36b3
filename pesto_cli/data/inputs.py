"""What an op takes, in order: the input slots that a rewriter of the graph has to know."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from pesto_cli.data.columns import IntArray, check_indices, check_length, whole_numbers
from pesto_cli.errors import BadInputError

NO_TENSOR = -1


@dataclass(frozen=True, eq=False)
class Inputs:
    """The data inputs of every op, in compressed rows: `tensors[offsets[i]:offsets[i + 1]]`.

    The place in its row is an input's slot. An op that takes a tensor twice has it there twice.

    offsets: `[num_ops + 1]`.
    tensors: `[num_inputs]`, tensor indices; `NO_TENSOR` for an input that is no tensor of the
        graph, such as a small constant that is copied to wherever it is taken.
    """

    offsets: IntArray
    tensors: IntArray

    @classmethod
    def build(cls, rows: Sequence[Sequence[int | None]]) -> Self:
        """Build from one row for each op; None is `NO_TENSOR`.

        Raises:
            BadInputError: a number does not fit into 64 bits.
        """
        flat = [NO_TENSOR if tensor is None else tensor for row in rows for tensor in row]
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return cls(offsets, whole_numbers("ops.inputs", flat))

    def __getitem__(self, op: int) -> IntArray:
        """The inputs of one op, by slot."""
        return self.tensors[self.offsets[op] : self.offsets[op + 1]]

    @cached_property
    def op(self) -> IntArray:
        """`[num_inputs]`: the op that takes each input."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @cached_property
    def slot(self) -> IntArray:
        """`[num_inputs]`: the place of each input among those of its op."""
        return np.arange(len(self.tensors)) - self.offsets[self.op]

    def rows(self) -> Iterator[list[int | None]]:
        """Yield what `build` takes."""
        flat = [None if tensor < 0 else tensor for tensor in self.tensors.tolist()]
        bounds = self.offsets.tolist()
        return (flat[first:last] for first, last in pairwise(bounds))

    def renumbered(self, number: IntArray) -> Self:
        """The same where tensor i has become `number[i]`.

        Raises:
            BadInputError: an index is none of a tensor.
        """
        check_indices("ops.inputs", self.tensors, NO_TENSOR, len(number), "tensor")
        return type(self)(self.offsets, np.append(number, NO_TENSOR)[self.tensors])

    def check(
        self, names: Sequence[str], consumers: IntArray, consumer_tensor: IntArray, num_tensors: int
    ) -> None:
        """Check that ops take the tensors of which they are consumers, and no others.

        Args:
            names: of the ops.
            consumers: ops, of each tensor ascending and unique.
            consumer_tensor: the tensor that each of these takes, ascending.
            num_tensors: of the graph.

        Raises:
            BadInputError: naming the op and the tensor.
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
                f"op {names[op]!r} takes tensor {tensor} by {one}, but not by {other}; the same "
                "tensors were expected in both: correct either, or leave out ops.inputs."
            )
