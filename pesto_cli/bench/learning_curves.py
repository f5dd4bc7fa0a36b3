"""Charts of learning curves: the best step so far of each run of a policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pesto_cli.bench.record import CurvePoint

if TYPE_CHECKING:
    import altair as alt

AXES = {"placements": "num_placements", "seconds": "seconds"}
"""The fields of a point that can be on the horizontal axis, by their title."""
WIDTH, HEIGHT = 300, 200


@dataclass(frozen=True)
class Panel:
    """One panel: the runs of one graph.

    curves: of each policy, the curves of its runs. steps_us: the steps of rivals, as lines.
    """

    title: str
    curves: Mapping[str, Sequence[Sequence[CurvePoint]]]
    steps_us: Mapping[str, float] = field(default_factory=dict)


def curves_chart(
    panels: Sequence[Panel], axis: str, colours: Mapping[str, str]
) -> "alt.ConcatChart":
    """Draw all panels, two in a row.

    axis: one of `AXES`. colours: by the name of a policy or rival.
    """
    import altair as alt

    step = alt.Y("ms:Q", title="best step, ms", scale=alt.Scale(type="log", nice=False))
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    colour = alt.Color("policy:N", title=None, scale=scale)
    drawn = []
    for panel in panels:
        points = [
            {
                "policy": policy,
                "run": number,
                axis: getattr(point, AXES[axis]),
                "ms": point.best_us / 1e3,
            }
            for policy, runs in panel.curves.items()
            for number, curve in enumerate(runs)
            for point in curve
        ]
        rivals = [{"policy": name, "ms": us / 1e3} for name, us in panel.steps_us.items()]
        curves = (
            alt.Chart(alt.InlineData(values=points))
            .mark_line(interpolate="step-after")
            .encode(
                x=alt.X(f"{axis}:Q", title=axis, scale=alt.Scale(type="log", nice=False)),
                y=step,
                color=colour,
                detail="run:N",
            )
        )
        lines = (
            alt.Chart(alt.InlineData(values=rivals))
            .mark_rule(strokeDash=[4, 3])
            .encode(y=step, color=colour)
        )
        layers = curves + lines if rivals else curves
        drawn.append(layers.properties(width=WIDTH, height=HEIGHT, title=panel.title))
    whole: alt.ConcatChart = alt.concat(*drawn, columns=2)
    return whole
