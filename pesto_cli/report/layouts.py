"""Tables that fit a terminal of any width, and lose nothing in a file."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.containers import Lines
from rich.table import Table
from rich.text import Text

from pesto_cli.printable import printable

# Wider than any table: a file has no width of its own.
WIDTH_OF_A_FILE = 10_000


class Cell(Text):
    """Text in which a name that is wider than its column breaks behind a `/`, if there is one."""

    def wrap(self, console: Console, width: int, *options: Any, **more: Any) -> Lines:
        """As rich does, which knows of no place to break within a word."""
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
    """The same figures in several forms, widest first: shown is the first that there is room for.

    Where there is room for none, the cells of the last one take several lines.
    """

    def __init__(self, title: str, *forms: Table) -> None:
        self._title, self._forms = printable(title), forms

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Title and table."""
        any_width = options.update_width(WIDTH_OF_A_FILE)
        fitting = (
            form
            for form in self._forms
            if console.measure(form, options=any_width).maximum <= options.max_width
        )
        shown = next(fitting, self._forms[-1])
        if self._title:
            yield Text(self._title, style="bold", overflow="fold")
        if not shown.show_edge:  # which is an empty line at the top
            yield Text()
        yield shown


# A line, or several below each other.
Lined = str | Sequence[str]


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Lined]],
    *,
    num_text: int = 1,
    narrow: bool = False,
) -> Table:
    """A table whose first columns are text and whose others are numbers.

    Headers and cells are made printable here.

    narrow: headers in several lines, less space between columns and none at the edges.
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
    """A table in its wide and its narrow form."""
    forms = (table(columns, rows, num_text=num_text, narrow=narrow) for narrow in (False, True))
    return Layouts(title, *forms)


def print_layouts(shown: Iterable[Layouts]) -> None:
    """Print to stdout."""
    print("\n".join(_rendered(each, Console(highlight=False)) for each in shown), flush=True)


def plain_text(shown: Layouts) -> str:
    """A table as text for stderr, without bold headers."""
    console = Console(stderr=True, color_system=None, highlight=False, force_jupyter=False)
    return _rendered(shown, console)


def _rendered(shown: Layouts, console: Console) -> str:
    """As wide as the terminal; a file gets all of the width."""
    # Not rich's word alone: FORCE_COLOR makes a terminal of any file.
    if not console.file.isatty():
        console.width = WIDTH_OF_A_FILE
    # Captured, as rich would end the process itself where nobody reads its output.
    with console.capture() as text:
        console.print(shown)
    return "\n".join(line.rstrip() for line in text.get().splitlines()).rstrip() + "\n"
