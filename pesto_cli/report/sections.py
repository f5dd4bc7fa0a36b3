"""Sections of remarks, tables and lists of ops, for a terminal or in Markdown."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pesto_cli.printable import printable
from pesto_cli.report.layouts import layouts, print_layouts
from pesto_cli.report.markdown import markdown_table

# The number of ops of a list that are named.
NAMED_IN_TEXT, NAMED_IN_MARKDOWN = 10, 100


@dataclass(frozen=True)
class Section:
    """Remarks, a table whose first `num_text` columns are text, and lists of ops by heading."""

    title: str = ""
    remarks: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    num_text: int = 1
    ops: Mapping[str, Sequence[str]] = field(default_factory=dict)


def print_sections(title: str, sections: Sequence[Section]) -> None:
    """Print a title and its sections to stdout."""
    print(printable(title))
    is_spaced = False  # an empty line was printed last, as at the end of a table
    for section in sections:
        for remark in section.remarks:
            print(printable(remark))
            is_spaced = False
        if section.rows:
            if not is_spaced:
                print()
            table = layouts(section.title, section.columns, section.rows, num_text=section.num_text)
            print_layouts([table])
            is_spaced = True
        for what, names in section.ops.items():
            if names:
                listed = ", ".join(_first(names, NAMED_IN_TEXT))
                print(printable(f"{what}: {listed}"), flush=True)
                is_spaced = False


def sections_markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the sections in Markdown, for a comment or a job summary; lists are folded."""
    blocks = [f"### {_escaped(title)}"]
    for section in sections:
        blocks += map(_escaped, section.remarks)
        if section.rows:
            rows = [list(map(_escaped, row)) for row in section.rows]
            blocks += [f"**{_escaped(section.title)}**"] if section.title else []
            columns = list(map(_escaped, section.columns))
            blocks.append(markdown_table(columns, rows, num_text=section.num_text))
        for what, names in section.ops.items():
            if names:
                listed = "\n".join(f"- {_escaped(n)}" for n in _first(names, NAMED_IN_MARKDOWN))
                summary = f"<summary>{len(names):,} {_escaped(what)}</summary>"
                blocks.append(f"<details>{summary}\n\n{listed}\n\n</details>")
    return "\n\n".join(blocks) + "\n"


def _first(names: Sequence[str], most: int) -> list[str]:
    left_out = len(names) - most
    return [*names[:most], *([f"{left_out:,} more"] if left_out > 0 else [])]


def _escaped(text: str) -> str:
    """Escape a text for Markdown and HTML."""
    one_line = html.escape(" ".join(printable(text).split()), quote=False)
    return "".join(f"\\{letter}" if letter in r"\`*[]|" else letter for letter in one_line)
