"""Columns with repeated entries: a list of distinct values, and an index into it for each row."""

from collections.abc import Hashable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Discriminator, Field, Tag

from pesto_cli.data.columns import check_length
from pesto_cli.errors import BadInputError
from pesto_cli.files.storage import Schema

Sizes = list[Annotated[int, Field(ge=0, lt=2**45)] | None]
_Place = Annotated[int, Field(ge=0, lt=2**31)]


class RepeatedTexts(Schema):
    """A column as distinct values and, for each row, the index of its value."""

    values: list[str | None]
    index: list[_Place]


class RepeatedShapes(Schema):
    """A column of shapes as distinct values and, for each row, the index of its value."""

    values: list[Sizes | None]
    index: list[_Place]


def _form(value: Any) -> str:
    return "repeated" if isinstance(value, dict | BaseModel) else "plain"


TextColumn = Annotated[
    Annotated[list[str | None], Tag("plain")] | Annotated[RepeatedTexts, Tag("repeated")],
    Discriminator(_form),
]
ShapeColumn = Annotated[
    Annotated[list[Sizes | None], Tag("plain")] | Annotated[RepeatedShapes, Tag("repeated")],
    Discriminator(_form),
]


def entries(name: str, column: TextColumn | ShapeColumn | None, num_rows: int) -> list[Any]:
    """Return the entries of a column, one for each row; all None if there is no column.

    Raises:
        BadInputError: the number of entries is not `num_rows`, or an index is out of range.
    """
    if column is None:
        return [None] * num_rows
    rows = column if isinstance(column, list) else column.index
    check_length(name, len(rows), num_rows)
    if isinstance(column, list):
        return column
    values, last = column.values, max(column.index, default=-1)
    if last >= len(values):
        raise BadInputError(
            f"{name}.index has {last}; an index below the number of values, {len(values)}, "
            "was expected."
        )
    return [values[place] for place in column.index]


def repeated_json(column: Sequence[Hashable]) -> dict[str, Any]:
    """Return a column in its form for files, with values in order of appearance."""
    place: dict[Hashable, int] = {}
    index = [place.setdefault(value, len(place)) for value in column]
    return {"values": list(place), "index": index}
