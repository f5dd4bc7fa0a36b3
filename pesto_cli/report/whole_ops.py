"""The ops of a profile that cannot be split, by op type."""

from collections.abc import Mapping, Sequence
from typing import Any

from pesto_cli.report.layouts import Layouts, layouts

# Rows of the table, and the share of the work below which an op type is left out of it.
MOST_ROWS = 8
LEAST_SHARE = 5e-4


def whole_ops_table(rows: Sequence[Mapping[str, Any]]) -> Layouts:
    """Return a table of the op types with the most work that stay whole.

    rows: op type, reason, number of ops and share of the work of each, by descending share, as in
        the provenance of a profile with prices of parts.
    """
    shown = [row for row in rows[:MOST_ROWS] if row["share"] >= LEAST_SHARE]
    share = sum(row["share"] for row in rows)
    without_rule = sum(row["share"] for row in rows if row["reason"] == "no rule")
    title = f"ops that stay whole: {share:.1%} of the work, {without_rule:.1%} without a rule"
    if not shown:
        return layouts(f"{title} (--json lists them)" if rows else title, (), ())
    if len(shown) < len(rows):
        title += f"; those with the most of {len(rows)} op types (--json lists all)"
    cells = [
        [row["type"], row["reason"], str(row["num_ops"]), f"{row['share']:.1%}"] for row in shown
    ]
    columns = ["op type", "stays whole", "ops", "share of the work"]
    return layouts(title, columns, cells, num_text=2)
