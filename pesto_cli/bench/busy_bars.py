"""Charts of the busy periods of devices and links."""

from typing import TYPE_CHECKING

from pesto_cli.bench.record import Record

if TYPE_CHECKING:
    import altair as alt


def busy_bars(title: str, record: Record, longest_ms: float) -> "alt.Chart":
    """Draw the timeline of a record; longest_ms: the end of the time axis."""
    import altair as alt

    rows = [
        {"row": row, "from": start / 1e3, "to": end / 1e3, "link": "->" in row}
        for row, spans in record.timeline.items()
        for start, end in spans
    ]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(height=12)
        .encode(
            x=alt.X("from:Q", title="ms", scale=alt.Scale(domain=[0, longest_ms], nice=False)),
            x2="to:Q",
            y=alt.Y("row:N", title=None, sort=list(record.timeline)),
            color=alt.Color(
                "link:N",
                legend=None,
                scale=alt.Scale(domain=[False, True], range=["#4c78a8", "#e4572e"]),
            ),
        )
        .properties(width=640, height=alt.Step(18), title=title)
    )
    return chart
