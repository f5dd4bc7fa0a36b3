"""The columns of an op graph, computed from rows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pesto_cli.data.columns import BoolArray, IntArray, differ_from_last, whole_numbers

Known = TypeVar("Known")


def consumer_columns(
    tensor: IntArray, consumer: IntArray, on_host: BoolArray, num_tensors: int
) -> tuple[IntArray, IntArray, BoolArray]:
    """Return the columns `consumer_offsets`, `consumers` and `consumer_on_host` of a graph.

    A consumer that takes a tensor both on the host and on its own device counts as one that takes
    the tensor on its device.

    Args:
        tensor: `[num_taken]`, in any order: a tensor that an op takes.
        consumer: `[num_taken]`: that op. A pair may be repeated.
        on_host: `[num_taken]`: whether the op takes the tensor in host memory.
        num_tensors: number of tensors of the graph.
    """
    order = np.lexsort((consumer, tensor))
    consumer, tensor = consumer[order], tensor[order]
    first = np.flatnonzero(differ_from_last(tensor, consumer))
    if len(first):
        on_host = np.logical_and.reduceat(on_host[order], first)
    offsets = np.searchsorted(tensor[first], np.arange(num_tensors + 1))
    return offsets, consumer[first], on_host


def op_column(name: str, values: ArrayLike | None, num_ops: int, default: int) -> IntArray:
    """Return a column of whole numbers, `[num_ops]`. If `values` is None, each is `default`."""
    if values is None:
        return np.full(num_ops, default, dtype=np.int64)
    return whole_numbers(f"ops.{name}", values)


def known(values: Iterable[Known | None]) -> tuple[Known | None, ...]:
    """Return a column, or an empty tuple if all its values are None."""
    column = tuple(values)
    return column if any(value is not None for value in column) else ()


def dense_groups(groups: Sequence[int | str | None] | None, num_ops: int) -> IntArray:
    """Number groups from 0 in order of appearance; every None is a group of one op."""
    if groups is None:
        return np.arange(num_ops, dtype=np.int64)
    unused = count()
    number = defaultdict[int | str, int](unused.__next__)
    numbers = [next(unused) if group is None else number[group] for group in groups]
    return np.array(numbers, dtype=np.int64)


def dense_numbers(groups: IntArray) -> IntArray:
    """Number groups from 0 in order of appearance, `[num_ops]`; equal entries are one group."""
    _, first, which = np.unique(groups, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    found: IntArray = place[which]
    return found
