"""Neighbours of every op, and what follows from them: a topological order, reachable ops."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from pesto_cli.data.columns import BoolArray, IntArray


@dataclass(frozen=True)
class Adjacency:
    """Neighbours of every op in compressed rows: `indices[offsets[i]:offsets[i + 1]]`."""

    offsets: IntArray
    indices: IntArray

    def __getitem__(self, op: int) -> IntArray:
        """The neighbours of one op, ascending."""
        return self.indices[self.offsets[op] : self.offsets[op + 1]]

    @cached_property
    def degree(self) -> IntArray:
        """Number of neighbours, `[num_ops]`."""
        return np.diff(self.offsets)

    @classmethod
    def from_edges(cls, num_ops: int, tails: IntArray, heads: IntArray) -> Self:
        """Build from unique edges `tails[k] -> heads[k]`; the row of an op has its heads."""
        order = np.lexsort((heads, tails))
        offsets = np.zeros(num_ops + 1, dtype=np.int64)
        np.cumsum(np.bincount(tails, minlength=num_ops), out=offsets[1:])
        return cls(offsets, heads[order])


def topological_order(successors: Adjacency) -> list[int]:
    """Return the ops in topological order, without ops on a cycle or reachable from one.

    This is Kahn's algorithm with a FIFO queue, so the order is deterministic.
    """
    offsets, heads = successors.offsets.tolist(), successors.indices.tolist()
    waiting = np.bincount(successors.indices, minlength=len(successors.degree)).tolist()
    order = [op for op, count in enumerate(waiting) if count == 0]
    for op in order:
        for head in heads[offsets[op] : offsets[op + 1]]:
            waiting[head] -= 1
            if waiting[head] == 0:
                order.append(head)
    return order


def reached(neighbours: Adjacency, starts: Iterable[int]) -> BoolArray:
    """Return whether each op is one of `starts`, or is reached from them, `[num_ops]`."""
    offsets, indices = neighbours.offsets.tolist(), neighbours.indices.tolist()
    found, waiting = [False] * len(neighbours.degree), list(starts)
    while waiting:
        op = waiting.pop()
        if not found[op]:
            found[op] = True
            waiting += indices[offsets[op] : offsets[op + 1]]
    return np.array(found, dtype=np.bool_)
