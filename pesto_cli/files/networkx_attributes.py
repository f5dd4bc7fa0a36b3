"""Checks of the attributes of networkx graphs.

Each takes the place of an attribute (`node 'a'`), its name and its value, and returns the value. It
raises BadInputError if the value is wrong.
"""

import sys
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from pesto_cli.data.graph import Shape
from pesto_cli.errors import BadInputError
from pesto_cli.files.profile_schema import MAX_TENSOR_BYTES


def number(where: str, attribute: str, value: object) -> float:
    """Return a value that has to be a number."""
    if not isinstance(value, int | float | np.number):
        raise BadInputError(f"{where} has {attribute} {value!r}; a number was expected.")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise BadInputError(f"{where} has a {attribute} that is too large for a floating number.")
    return value if isinstance(value, int) else float(value)


def size(where: str, attribute: str, value: object) -> int:
    """Return a value that has to be a number of bytes or ops."""
    found = number(where, attribute, value)
    if not 0 <= found <= MAX_TENSOR_BYTES or found != int(found):
        raise BadInputError(
            f"{where} has {attribute} {value!r}; a whole number from 0 to {MAX_TENSOR_BYTES:,} was "
            "expected."
        )
    return int(found)


def text(where: str, attribute: str, value: object) -> str | None:
    """Return a value that has to be a text or None."""
    if not isinstance(value, str | None):
        raise BadInputError(f"{where} has {attribute} {value!r}; a text or None was expected.")
    return value


def shape(where: str, attribute: str, value: object) -> Shape | None:
    """Return a value that has to be the sizes of dimensions, or None."""
    if value is None:
        return None
    if not _is_sequence(value) or not all(size is None or is_whole(size) for size in value):
        raise BadInputError(
            f"{where} has {attribute} {value!r}; sizes of dimensions were expected, None for an "
            "open dimension."
        )
    return tuple(None if size is None else int(size) for size in value)


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number."""
    return isinstance(value, int | np.integer)


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def sequence(where: str, attribute: str, value: object) -> Sequence[Any]:
    """Return a value that has to be a list, a tuple or an array."""
    if not _is_sequence(value):
        raise BadInputError(f"{where} has {attribute} {value!r}; a list was expected.")
    return value


def group(where: str, value: Any) -> int | str | None:
    """Return a value that has to be the number or name of a colocation group, or None."""
    if not isinstance(value, str | None) and not is_whole(value):
        raise BadInputError(
            f"{where} has group {value!r}; a whole number, a text or None was expected."
        )
    return value if isinstance(value, str | None) else int(value)
