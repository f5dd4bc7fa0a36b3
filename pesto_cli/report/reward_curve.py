"""The reward curve of a learned policy: step times of its placements during the training."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pesto_cli.data.result import RewardPoint
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.times import TimeScale, time_text

if TYPE_CHECKING:
    import altair as alt

WIDTH, HEIGHT = 520, 300
MEAN, BEST = "mean", "best so far"


def point_text(point: RewardPoint, names: Mapping[str, str]) -> str:
    """Return a line of the log without its time; names: hash of a profile -> its name."""
    return (
        f"{point.num_placements:8,} placements  mean {time_text(point.mean_us)}  "
        f"best {time_text(point.best_us)}  {names.get(point.graph, point.graph[:12])}"
    )


def curve_table(title: str, curve: Sequence[RewardPoint], names: Mapping[str, str]) -> Layouts:
    """Return a table with the first and last tenth of the curve of each profile that has one."""
    every = {graph: [each for each in curve if each.graph == graph] for graph in names}
    of_graph = {graph: points for graph, points in every.items() if points}
    scale = TimeScale.of(point.best_us for point in curve)
    rows = []
    for graph, points in of_graph.items():
        means_us = np.array([point.mean_us for point in points])
        tenth = max(1, len(points) // 10)
        times_us = (means_us[:tenth].mean(), means_us[-tenth:].mean(), points[-1].best_us)
        rows.append([names[graph], f"{len(points):,}", *map(scale.text, times_us)])
    columns = ["profile", "iterations"]
    columns += [f"{what} {scale.unit}" for what in ("first mean", "last mean", "best")]
    return layouts(title, columns, rows)


def curve_chart(curve: Sequence[RewardPoint], names: Mapping[str, str]) -> "alt.Chart":
    """Draw the mean step time of each iteration, and the shortest so far, for each profile."""
    import altair as alt

    placements = alt.X("placements:Q", title="placements")
    step = alt.Y("ms:Q", title="step time (ms)", scale=alt.Scale(zero=False, type="log"))
    profile = alt.Color("profile:N", sort=None, title="profile")
    kind = alt.StrokeDash("kind:N", sort=[BEST, MEAN], title="")
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=list(_rows(curve, names))))
        .mark_line(strokeWidth=1)
        .encode(x=placements, y=step, color=profile, strokeDash=kind)
        .properties(width=WIDTH, height=HEIGHT)
    )
    return chart


def _rows(
    curve: Sequence[RewardPoint], names: Mapping[str, str]
) -> Iterator[dict[str, str | float]]:
    """Yield two points for each iteration."""
    for point in curve:
        for kind, time_us in ((MEAN, point.mean_us), (BEST, point.best_us)):
            yield {
                "placements": point.num_placements,
                "profile": names.get(point.graph, point.graph[:12]),
                "kind": kind,
                "ms": time_us / 1e3,
            }
