"""Columns whose entries repeat: a list of the distinct values, and for each row which one it is."""

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Discriminator, Field, Tag

from pesto_cli.errors import BadInputError
from pesto_cli.files.storage import Schema

T = TypeVar("T")


class Repeated(Schema, Generic[T]):
    """A column as distinct `values` and, for each row, the `index` of its value."""

    values: list[T]
    index: list[Annotated[int, Field(ge=0, lt=2**31)]]


def _form(value: Any) -> str:
    return "repeated" if isinstance(value, dict | Repeated) else "plain"


Column = Annotated[
    Annotated[list[T], Tag("plain")] | Annotated[Repeated[T], Tag("repeated")],
    Discriminator(_form),
]
"""A column, plain or as `Repeated`."""


def entries(name: str, column: list[T] | Repeated[T] | None) -> list[T] | None:
    """The entries of a column, one for each row; None if there is none.

    Raises:
        BadInputError: an index is none of a value.
    """
    if not isinstance(column, Repeated):
        return column
    values, index = column.values, column.index
    if max(index, default=-1) >= len(values):
        raise BadInputError(
            f"{name}.index has {max(index)}; an index below {len(values)}, the number of values, "
            "was expected."
        )
    return [values[place] for place in index]


def repeated_json(column: Sequence[Hashable]) -> dict[str, Any]:
    """A column as it stands in a file, values in order of appearance."""
    place: dict[Hashable, int] = {}
    index = [place.setdefault(value, len(place)) for value in column]
    return {"values": list(place), "index": index}
