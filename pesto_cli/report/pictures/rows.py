"""Rows of data for charts."""

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pesto_cli.printable import printable

if TYPE_CHECKING:
    import altair as alt

Row = dict[str, str | float]
TYPES = {int: "number", float: "number", str: "string"}


def inline(rows: Sequence[Row]) -> "alt.InlineData":
    """Return rows as inline CSV: half the size of objects, which altair also copies many times."""
    import altair as alt

    columns = rows[0] if rows else {}
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: printable(cell) if isinstance(cell, str) else cell for name, cell in row.items()}
        for row in rows
    )
    parse = {name: TYPES[type(value)] for name, value in columns.items()}
    return alt.InlineData(
        values=text.getvalue(), format=alt.CsvDataFormat(type="csv", parse=parse or None)
    )
