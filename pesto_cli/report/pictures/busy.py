"""A chart of the utilisation of devices and links, by op type."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pesto_cli.report.pictures.rows import Row, inline
from pesto_cli.report.pictures.spans import Drawn
from pesto_cli.report.pictures.type_colours import OTHER, type_colours

if TYPE_CHECKING:
    import altair as alt

ROW_PIXELS = 24


def busy_chart(
    drawn: Drawn,
    *,
    title: str = "busy time, as a share of the step time",
    width: int | str = 900,
) -> "alt.Chart":
    """Draw a bar for each device and link, by op type; the rest of the bar is idle time."""
    import altair as alt

    rows, makespan_us = drawn.rows, drawn.schedule.makespan_us or 1.0
    colour_of = type_colours(drawn.bars)
    took_us = {(row, OTHER): 0.0 for row in rows}
    for bar in drawn.bars:
        key = (bar.row, bar.kind if bar.kind in colour_of else OTHER)
        took_us[key] = took_us.get(key, 0.0) + bar.took_us
    chart: alt.Chart = (
        alt.Chart(inline(list(_shares(took_us, list(colour_of), makespan_us))))
        .mark_bar()
        .encode(
            x=alt.X(
                "share:Q", title=None, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])
            ),
            y=alt.Y("row:N", title=None, scale=alt.Scale(domain=rows)),
            color=alt.Color(
                "type:N",
                title=None,
                scale=alt.Scale(domain=list(colour_of), range=list(colour_of.values())),
                legend=alt.Legend(orient="top", symbolType="square", labelLimit=200),
            ),
            order="place:Q",
            tooltip=[
                alt.Tooltip("row:N", title="on"),
                alt.Tooltip("type:N"),
                alt.Tooltip("share:Q", title="of the step", format=".1%"),
                alt.Tooltip("ms:Q", title="takes (ms)", format=",.3~f"),
            ],
        )
        .properties(width=width, height=alt.Step(ROW_PIXELS), title=title)
    )
    return chart


def _shares(
    took_us: dict[tuple[str, str], float], types: Sequence[str], makespan_us: float
) -> Iterator[Row]:
    for (row, kind), us in took_us.items():
        share = us / makespan_us
        yield {
            "row": row,
            "type": kind,
            "place": [*types, OTHER].index(kind),
            "share": share,
            "ms": us / 1e3,
        }
