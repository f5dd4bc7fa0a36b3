"""Building blocks of HTML; text is escaped only here."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pesto_cli.printable import printable


@dataclass(frozen=True)
class Share:
    """A cell with a bar behind its text; the share, from 0 to 1, is the length of the bar."""

    text: str
    share: float


Cell = str | Share


def escape(text: str) -> str:
    """Escape a text for HTML, including unprintable characters."""
    return html.escape(printable(text))


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, num_text: int = 1
) -> str:
    """Return a table whose first `num_text` columns are text and whose others are numbers."""
    head = "".join(
        f'<th scope="col"{_kind(index, num_text)}>{escape(column)}</th>'
        for index, column in enumerate(columns)
    )
    body = "".join(
        f"<tr>{''.join(_cell(index, cell, num_text) for index, cell in enumerate(row))}</tr>\n"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>{body}</tbody></table></div>\n"
    )


def figures(named: Iterable[tuple[str, str, str]]) -> str:
    """Return large figures, each given as name, figure and remark."""
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(figure)}</dd><dd>{escape(remark)}</dd></div>\n"
        for name, figure, remark in named
    )


def _cell(index: int, cell: Cell, num_text: int) -> str:
    if isinstance(cell, Share):
        length = f"{min(1.0, cell.share):.1%}"
        return f'<td class="number share" style="--share:{length}">{escape(cell.text)}</td>'
    if index == 0:
        return f'<th scope="row">{escape(cell)}</th>'
    return f"<td{_kind(index, num_text)}>{escape(cell)}</td>"


def _kind(index: int, num_text: int) -> str:
    return "" if index < num_text else ' class="number"'
