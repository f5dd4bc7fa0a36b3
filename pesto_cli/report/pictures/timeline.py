"""A Gantt chart of devices and links."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pesto_cli.report.critical_path import row_of
from pesto_cli.report.pictures import colours
from pesto_cli.report.pictures.rows import Row, inline
from pesto_cli.report.pictures.spans import TRANSFER, Bar, Drawn
from pesto_cli.report.pictures.type_colours import OTHER, type_colours
from pesto_cli.report.pictures.zoom import zoom_along_time
from pesto_cli.report.times import TimeScale, time_text

if TYPE_CHECKING:
    import altair as alt

CRITICAL_PATH = "critical path of the schedule"
ROW_PIXELS, BAR_PIXELS = 24, 15
LEGEND_ENTRY_PIXELS = 120  # typical width of an entry of the legend


def timeline_chart(
    drawn: Drawn,
    *,
    title: str = "",
    width: int | str = 900,
    wrap_legend: bool = True,
) -> "alt.LayerChart | alt.FacetChart":
    """Draw rows of devices and links with bars coloured by op type; see `timeline_note`.

    The critical path of the schedule is a line from row to row. width: in pixels, or "container".
    wrap_legend: whether the chart itself wraps its legend at a width in pixels.
    """
    import altair as alt

    scale = TimeScale.of([drawn.schedule.makespan_us])
    until_us = drawn.schedule.makespan_us or 1.0
    types = type_colours(drawn.bars)
    bars, _ = drawn.merged
    legend = types | ({CRITICAL_PATH: colours.CRITICAL} if drawn.path else {})
    x = alt.X(
        "from:Q",
        title=scale.unit,
        axis=alt.Axis(tickCount=10),
        scale=alt.Scale(domain=[0, until_us / scale.us_per_unit], nice=False),
    )
    y = alt.Y("row:N", title=None, scale=alt.Scale(domain=drawn.rows))
    legend_style = alt.Legend(orient="top", symbolType="square", labelLimit=200)
    if wrap_legend and isinstance(width, int):
        legend_style.columns = max(2, width // LEGEND_ENTRY_PIXELS)
    color = alt.Color(
        "colour:N",
        title=None,
        scale=alt.Scale(domain=list(legend), range=list(legend.values())),
        legend=legend_style,
    )
    spans = _bars(list(_rows(bars, types, scale)), scale, x=x, y=y, color=color)
    critical = (
        alt.Chart(inline(list(_corners(drawn, scale))))
        .mark_line(strokeWidth=2, clip=True, yOffset=BAR_PIXELS / 2)
        .encode(x=x, y=y, order="number:Q", color=alt.datum(CRITICAL_PATH))
    )
    return alt.layer(spans, critical).properties(
        width=width, height=alt.Step(ROW_PIXELS), title=title
    )


def _bars(rows: Sequence[Row], scale: TimeScale, *, x: Any, y: Any, color: Any) -> Any:
    import altair as alt

    return (
        alt.Chart(inline(rows))
        .mark_bar(height=BAR_PIXELS, clip=True)
        .encode(
            x=x,
            x2="to:Q",
            y=y,
            color=color,
            # The bar of a transfer is often narrower than a pixel, so it has a border.
            stroke=alt.condition(
                f"datum.type == '{TRANSFER}'", alt.value(colours.TRANSFER), alt.value(None)
            ),
            tooltip=[
                alt.Tooltip("name:N", title="op"),
                alt.Tooltip("type:N"),
                alt.Tooltip("row:N", title="on"),
                alt.Tooltip("from:Q", title=f"start ({scale.unit})", format=",.4~f"),
                alt.Tooltip("took:Q", title="takes (us)", format=",.2~f"),
                alt.Tooltip("bytes:Q", format=","),
            ],
        )
        .add_params(zoom_along_time())
    )


def timeline_note(drawn: Drawn) -> str:
    """Return remarks on what a timeline leaves out or merges; empty if nothing."""
    bars, narrow_us = drawn.merged
    remarks = []
    if narrow_us:
        merged = sum(bar.count for bar in bars if bar.count > 1)
        remarks.append(
            f"{merged:,} of {len(drawn.bars):,} ops and transfers are so short that one bar stands "
            f"for several of them. These bars are up to {time_text(narrow_us)} long. Zoom in, or "
            "click on a bar, to see each op."
        )
    no_time = drawn.problem.num_ops - (len(drawn.bars) - len(drawn.transfers))
    if no_time:
        remarks.append(f"Ops that take no time are not drawn ({no_time:,}).")
    if drawn.num_links_left_out:
        remarks.append(f"Other links are not drawn ({drawn.num_links_left_out}).")
    return " ".join(remarks)


def _rows(bars: Sequence[Bar], types: dict[str, str], scale: TimeScale) -> Iterator[Row]:
    for bar in bars:
        yield {
            "row": bar.row,
            "from": round(bar.from_us / scale.us_per_unit, 6),
            "to": round(bar.to_us / scale.us_per_unit, 6),
            "took": round(bar.took_us, 3),
            "name": bar.name,
            "type": bar.type,
            "colour": bar.kind if bar.kind in types else OTHER,
            "bytes": bar.num_bytes,
        }


def _corners(drawn: Drawn, scale: TimeScale) -> Iterator[Row]:
    """Yield where the line of the critical path begins and ends on each row.

    During a wait, or a transfer on a link that is not drawn, the line stays on its row.
    """
    spans: list[tuple[str, float, float]] = []
    for segment in drawn.path:
        row = row_of(drawn.problem, drawn.schedule, segment)
        if spans and (row == spans[-1][0] or row not in drawn.rows):
            spans[-1] = (*spans[-1][:2], segment.end_us)
        elif row in drawn.rows:
            spans.append((row, segment.start_us, segment.end_us))
    for number, (row, start_us, end_us) in enumerate(spans):
        for end, at_us in enumerate((start_us, end_us)):
            yield {"row": row, "from": at_us / scale.us_per_unit, "number": 2 * number + end}
