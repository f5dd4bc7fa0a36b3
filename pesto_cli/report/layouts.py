"""Tables that adapt to the width of a terminal, and have full width in a file."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.containers import Lines
from rich.table import Table
from rich.text import Text

from pesto_cli.printable import printable

# Wider than any table, because the width of a file is not limited.
WIDTH_OF_A_FILE = 10_000


class Cell(Text):
    """Text in which a name that is wider than its column breaks after a `/`, if there is one."""

    def wrap(self, console: Console, width: int, *options: Any, **more: Any) -> Lines:
        """Break long names after a `/`, then wrap lines as rich does."""
        text = re.sub(rf"\S{{{width + 1},}}", lambda word: _broken(word[0], width), self.plain)
        return Text(text, self.style).wrap(console, width, *options, **more)


def _broken(name: str, width: int) -> str:
    lines = [""]
    for part in re.findall("[^/]*/|[^/]+$", name):
        if len(lines[-1]) + len(part) > width and lines[-1]:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


class Layouts:
    """The same table in several forms, widest first; the first form that fits is shown.

    If no form fits, the last one is shown with cells of several lines.
    """

    def __init__(self, title: str, *forms: Table) -> None:
        self._title, self._forms = printable(title), forms

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the title and the first table that fits."""
        any_width = options.update_width(WIDTH_OF_A_FILE)
        fitting = (
            form
            for form in self._forms
            if console.measure(form, options=any_width).maximum <= options.max_width
        )
        shown = next(fitting, self._forms[-1])
        if self._title:
            yield Text(self._title, style="bold", overflow="fold")
        if not shown.show_edge:  # the edge is an empty line at the top
            yield Text()
        yield shown


# A cell of one line, or of several lines.
Lined = str | Sequence[str]


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Lined]],
    *,
    num_text: int = 1,
    narrow: bool = False,
) -> Table:
    """Return a table whose first `num_text` columns are text and whose others are numbers.

    Unprintable characters of headers and cells are escaped.

    narrow: headers take several lines, with less space between columns and none at the edges.
    """
    shown = Table(
        box=SIMPLE_HEAD, pad_edge=not narrow, show_edge=not narrow, collapse_padding=narrow
    )
    for index, column in enumerate(columns):
        shown.add_column(
            Text(printable(column).replace(" ", "\n" if narrow else " ")),
            justify="left" if index < num_text else "right",
            overflow="fold",
        )
    for row in rows:
        shown.add_row(*map(_cell, row))
    return shown


def _cell(content: Lined) -> Cell:
    lines = [content] if isinstance(content, str) else content
    return Cell("\n".join(map(printable, lines)))


def layouts(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Lined]], *, num_text: int = 1
) -> Layouts:
    """Return a table in a wide and a narrow form."""
    forms = (table(columns, rows, num_text=num_text, narrow=narrow) for narrow in (False, True))
    return Layouts(title, *forms)


def print_layouts(shown: Iterable[Layouts]) -> None:
    """Print tables to stdout."""
    text = "\n".join(_rendered(each, Console(highlight=False)) for each in shown)
    print(text.removeprefix("\n"), flush=True)  # the edge of a table without a title


def plain_text(shown: Layouts) -> str:
    """Return a table as text for stderr, without bold headers."""
    console = Console(stderr=True, color_system=None, highlight=False, force_jupyter=False)
    return _rendered(shown, console)


def _rendered(shown: Layouts, console: Console) -> str:
    """Render a table in the width of the terminal, or in full width for a file."""
    # rich alone is not enough: with FORCE_COLOR it considers any file a terminal.
    if not console.file.isatty():
        console.width = WIDTH_OF_A_FILE
    # Captured, because rich itself would end the process if the reader of the output has exited.
    with console.capture() as text:
        console.print(shown)
    return "\n".join(line.rstrip() for line in text.get().splitlines()).rstrip() + "\n"
