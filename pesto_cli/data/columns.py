"""Columns: numpy arrays with one entry for each row, and the checks that all of them share."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pesto_cli.errors import BadInputError

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def whole_numbers(column: str, values: ArrayLike) -> IntArray:
    """Make a column of 64-bit numbers.

    Raises:
        BadInputError: one has more bits.
    """
    try:
        return np.asarray(values, dtype=np.int64)
    except OverflowError:
        raise BadInputError(
            f"{column} has a number that 64 bits cannot hold; whole numbers from -2^63 to 2^63 - 1 "
            "were expected."
        ) from None


def check_length(column: str, found: int, expected: int) -> None:
    """Raise BadInputError for a column of another length."""
    if found != expected:
        raise BadInputError(
            f"{column} has {found} entries where {expected} were expected; "
            "every column lists one entry for each row."
        )


def check_indices(column: str, values: IntArray, low: int, high: int, what: str = "op") -> None:
    """Raise BadInputError for an index below `low`, or from `high` on."""
    outside = (values < low) | (values >= high)
    if outside.any():
        raise BadInputError(
            f"{column} names {what} {values[np.argmax(outside)]}; "
            f"an index between {low} and {high - 1} was expected."
        )
