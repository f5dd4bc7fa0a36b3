"""Read CSV tables row by row; errors name the line."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pesto_cli.data.machine import MAX_TIME_US
from pesto_cli.errors import BadInputError
from pesto_cli.files import MAX_TENSOR_BYTES, read_bytes

# Characters of a cell that an error message shows.
SHOWN = 60


@dataclass(frozen=True)
class TableRow:
    """One row. where: file and line, which error messages begin with."""

    where: str
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """Return the text of a column.

        Raises:
            BadInputError: the cell is empty.
        """
        cell = self.cells.get(column, "")
        if not cell:
            raise BadInputError(f"{self.where}: no {column}; fill in the column or drop the row.")
        return cell

    def amount(self, column: str, most: float = MAX_TIME_US) -> float:
        """Return the value of a column, a number from 0 to `most`.

        Raises:
            BadInputError: the cell holds something else.
        """
        cell = self.text(column)
        try:
            amount = float(cell)
        except ValueError:
            amount = math.nan
        if not 0 <= amount <= most:
            raise BadInputError(
                f"{self.where}: {column} is {cell[:SHOWN]!r}; a number from 0 to {most:g} was "
                "expected."
            )
        return amount

    def num_bytes(self, column: str) -> int:
        """Return a size in bytes: a whole number from 0 to the size of the largest tensor."""
        amount = self.amount(column, MAX_TENSOR_BYTES)
        if amount != int(amount):
            raise BadInputError(
                f"{self.where}: {column} is {self.cells[column]!r}; whole bytes were expected."
            )
        return int(amount)


def read_rows(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[TableRow]:
    """Yield the rows of a CSV file whose first line names its columns, in any order.

    A column may be spelt with spaces in place of underscores.

    Raises:
        BadInputError: the file cannot be read, its columns are not the expected ones, or a row has
            another number of cells.
    """
    lines = _lines(path)
    columns = [cell.strip().replace(" ", "_") for cell in next(lines, (1, []))[1]]
    known = {*required, *optional}
    if len(set(columns)) < len(columns) or not set(required) <= set(columns) <= known:
        also = f" (and {', '.join(optional)} where known)" if optional else ""
        raise BadInputError(
            f"{path}: the first line is {','.join(columns)!r}; the columns "
            f"{','.join(required)}{also} were expected."
        )
    for number, cells in lines:
        if len(cells) != len(columns):
            raise BadInputError(
                f"{path}, line {number}: {len(cells)} cells where {len(columns)} were expected: "
                f"{','.join(columns)}."
            )
        cells_of_column = zip(columns, map(str.strip, cells), strict=True)
        yield TableRow(f"{path}, line {number}", dict(cells_of_column))


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of every line that is not empty."""
    try:
        reader = csv.reader(read_bytes(path).decode("utf-8-sig").splitlines())
    except UnicodeDecodeError:
        raise BadInputError(f"{path} is not text; a CSV file in UTF-8 was expected.") from None
    try:
        yield from ((reader.line_num, cells) for cells in reader if cells)
    except csv.Error as error:
        raise BadInputError(
            f"{path}, line {reader.line_num}: {error}; a CSV file was expected."
        ) from None
