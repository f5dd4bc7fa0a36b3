"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, num_text: int = 1
) -> str:
    """Return a table whose first `num_text` columns are text and whose others are numbers."""
    rules = ["---"] * num_text + ["--:"] * (len(columns) - num_text)
    lines = [_line(columns), f"|{'|'.join(rules)}|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
