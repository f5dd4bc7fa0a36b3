"""A chart of the spread of measured op times, as in Figure 4(a) of the Pesto paper."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pesto_cli.errors import BadInputError
from pesto_cli.files import Profile

if TYPE_CHECKING:
    import altair as alt

# Ranges of mean times in us, and their names: the classes of Table 1 in the Pesto paper.
CLASSES = (
    (100.0, np.inf, "over 100 us"),
    (10.0, 100.0, "10 to 100 us"),
    (0.0, 10.0, "under 10 us"),
)
WIDTH, HEIGHT = 520, 300


def spread_chart(profile: Profile, title: str) -> "alt.Chart":
    """Draw the cumulative distribution of standard deviation / mean, a line for each class.

    Raises:
        BadInputError: the profile's times were not measured over several steps.
    """
    import altair as alt

    rows = list(_rows(profile))
    if not rows:
        raise BadInputError(
            f"{title}: no op was measured in several steps, but --plot shows the spread of "
            "measured times; profile with --source run, or with a trace of several steps."
        )
    ratio = alt.X(
        "deviation:Q",
        title="standard deviation / mean (100 % or more at the right edge)",
        axis=alt.Axis(format="%", tickCount=10),
    )
    share = alt.Y("share:Q", title="share of the ops, or less", axis=alt.Axis(format="%"))
    legend = alt.Legend(orient="bottom-right", labelLimit=300)
    name = alt.Color("class:N", title="mean op time", sort=None, legend=legend)
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(interpolate="step-after")
        .encode(x=ratio.scale(domain=[0, 1], clamp=True), y=share, color=name)
        .properties(width=WIDTH, height=HEIGHT, title=title)
    )
    return chart


def _rows(profile: Profile) -> Iterator[dict[str, object]]:
    """Yield a point for each op and device kind."""
    spread = profile.spread
    if spread is None:
        return
    mean_us = np.concatenate(list(spread.mean_us.values()))
    std_us = np.concatenate([spread.std_us[kind] for kind in spread.mean_us])
    runs = np.tile(spread.runs, len(spread.mean_us))
    for low_us, high_us, name in CLASSES:
        of_class = (runs > 1) & (mean_us > low_us) & (mean_us <= high_us)
        deviation = np.sort(std_us[of_class] / mean_us[of_class])
        named = f"{name} ({len(deviation)} ops)"
        for place, value in enumerate(deviation.tolist(), start=1):
            yield {"class": named, "deviation": value, "share": place / len(deviation)}
