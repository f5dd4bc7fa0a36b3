"""A chart of predicted and measured step times by round of a tuning."""

from typing import TYPE_CHECKING

from pesto_cli.files import TuningLog
from pesto_cli.report.times import TimeScale
from pesto_cli.report.tuning import round_names

if TYPE_CHECKING:
    import altair as alt

SIZE = 420
# Free space around the points, as a share of the times.
MARGIN = 0.05


def tuning_chart(log: TuningLog, title: str) -> "alt.LayerChart | alt.FacetChart":
    """Draw predicted against measured step times, coloured by round; on the line they are equal."""
    import altair as alt

    measured = [row for each in log.rounds for row in each.measured]
    every_us = [us for row in measured for us in (row.predicted_us, row.times.median_us)]
    scale = TimeScale.of(every_us)
    rows = [
        {
            "round": name,
            "candidate": row.candidate,
            "made": "simple" if log.candidate_of[row.candidate].is_simple else "searched",
            "predicted": row.predicted_us / scale.us_per_unit,
            "measured": row.times.median_us / scale.us_per_unit,
            "error": row.error,
        }
        for name, each in zip(round_names(log), log.rounds, strict=True)
        for row in each.measured
    ]
    low, high = (1 - MARGIN) * min(every_us), (1 + MARGIN) * max(every_us)
    ends = [each / scale.us_per_unit for each in (low, high)]
    axis = alt.Scale(domain=ends, nice=False, zero=False)
    x = alt.X("measured:Q", title=f"measured {scale.unit}", scale=axis)
    y = alt.Y("predicted:Q", title=f"predicted {scale.unit}", scale=axis)
    line = [{"measured": end, "predicted": end} for end in ends]
    equal = alt.Chart(alt.InlineData(values=line)).mark_line(strokeDash=[4, 4], color="grey")
    points = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_point(filled=True, size=70, opacity=0.8)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "round:N",
                title=None,
                sort=list(dict.fromkeys(round_names(log))),
                scale=alt.Scale(scheme="viridis"),
            ),
            shape=alt.Shape("made:N", title="candidate"),
            tooltip=[
                alt.Tooltip("candidate:N"),
                alt.Tooltip("measured:Q", format=",.4~f"),
                alt.Tooltip("predicted:Q", format=",.4~f"),
                alt.Tooltip("error:Q", format="+.1%"),
            ],
        )
    )
    return alt.layer(equal.encode(x=x, y=y), points).properties(
        width=SIZE, height=SIZE, title=title
    )
