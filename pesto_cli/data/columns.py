"""Columns: numpy arrays with one entry for each row, and checks for all of them."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pesto_cli.errors import BadInputError

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def whole_numbers(column: str, values: ArrayLike) -> IntArray:
    """Return a column of 64-bit whole numbers.

    Raises:
        BadInputError: a number does not fit into 64 bits.
    """
    try:
        return np.asarray(values, dtype=np.int64)
    except OverflowError:
        raise BadInputError(
            f"{column} has a number that does not fit into 64 bits; whole numbers from -2^63 to "
            "2^63 - 1 were expected."
        ) from None


def unique_rows(rows: IntArray) -> IntArray:
    """Return the different rows of a matrix in lexicographic order.

    This is several times faster than `numpy.unique` with an axis, which compares rows byte by byte.
    """
    ordered = rows[np.lexsort(rows.T[::-1])]
    return ordered[differ_from_last(*ordered.T)]


def differ_from_last(*columns: IntArray) -> BoolArray:
    """Return whether each row differs from the row before it; the first one does, `[num_rows]`."""
    found = np.ones(len(columns[0]), dtype=np.bool_)
    found[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return found


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs more than once; None if no name does."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def check_length(column: str, found: int, expected: int) -> None:
    """Raise BadInputError if a column does not have the expected length."""
    if found != expected:
        raise BadInputError(
            f"{column} has {found} entries, {expected} were expected; "
            "every column has one entry for each row."
        )


def check_indices(column: str, values: IntArray, low: int, high: int, what: str = "op") -> None:
    """Raise BadInputError if an index is not in `low <= index < high`."""
    outside = (values < low) | (values >= high)
    if outside.any():
        raise BadInputError(
            f"{column} names {what} {values[np.argmax(outside)]}; "
            f"an index between {low} and {high - 1} was expected."
        )
