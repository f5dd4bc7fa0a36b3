"""A card: a heading, facts and a table, as text and as HTML for light and dark notebooks.

Colours are those of the notebook, or translucent colours on top of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pesto_cli.printable import printable
from pesto_cli.report.layouts import layouts, plain_text
from pesto_cli.report.page.markup import Cell, Share, escape, table

STYLE = """<style>
.pesto { font-size: 13px; line-height: 1.5; }
.pesto .facts { opacity: 0.85; }
.pesto .wide { overflow-x: auto; }
.pesto .wide table { font-size: inherit; border-collapse: collapse; margin: 4px 0; border: none; }
.pesto .wide caption { display: none; }
.pesto .wide th, .pesto .wide td { padding: 2px 12px 2px 6px; text-align: left; border: none;
  border-bottom: 1px solid rgba(128, 128, 128, 0.3); background: none; color: inherit; }
.pesto .wide thead th { opacity: 0.75; font-weight: normal; }
.pesto .wide tbody th { font-weight: 600; }
.pesto .wide .number { text-align: right; font-variant-numeric: tabular-nums; }
.pesto .wide .share { min-width: 80px; background: linear-gradient(to right,
  rgba(58, 134, 255, 0.35) var(--share), transparent var(--share)); }
</style>"""


@dataclass(frozen=True)
class Card:
    """The representation of a value.

    columns, rows: a table; the first column is text, the others are numbers.
    picture: an SVG, which the text form leaves out.
    """

    title: str
    facts: Sequence[str]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    picture: str = ""

    def html(self) -> str:
        """Return the card as HTML."""
        facts = " · ".join(map(escape, self.facts))
        shown = table(self.title, self.columns, self.rows) if self.rows else ""
        return (
            f'{STYLE}<div class="pesto"><div><strong>{escape(self.title)}</strong> '
            f'<span class="facts">{facts}</span></div>{shown}{self.picture}</div>'
        )

    def text(self) -> str:
        """Return the card as plain text."""
        heading = printable(f"{self.title}: {', '.join(self.facts)}")
        if not self.rows:
            return heading
        rows = [[_text(cell) for cell in row] for row in self.rows]
        return plain_text(layouts(heading, self.columns, rows)).rstrip()


def _text(cell: Cell) -> str:
    return cell.text if isinstance(cell, Share) else cell
