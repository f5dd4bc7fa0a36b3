"""A chart of a round of merging in a small graph: which pairs merge, which do not, and why."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pesto_cli.report.pictures import colours
from pesto_cli.report.pictures.rows import Row, inline

if TYPE_CHECKING:
    import altair as alt

MERGED = "merged"
COLOURS = {
    MERGED: colours.OF_DEVICES[1],
    "taken": colours.OTHER,
    "barred": colours.TRANSFER,
    "may close a cycle": colours.CRITICAL,
}
LAYER_PIXELS, PLACE_PIXELS = 110, 60
SWEEPS = 6


class Pair(Protocol):
    """Two nodes by name and height, why they could merge, and the verdict."""

    @property
    def first(self) -> str: ...  # noqa: D102
    @property
    def second(self) -> str: ...  # noqa: D102
    @property
    def first_height(self) -> int: ...  # noqa: D102
    @property
    def second_height(self) -> int: ...  # noqa: D102
    @property
    def why(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def verdict(self) -> str: ...  # noqa: D102


def merges_chart(pairs: Sequence[Pair], *, title: str = "") -> "alt.LayerChart | alt.FacetChart":
    """Draw nodes from left to right by height, and a line for each pair, dashed without an edge."""
    import altair as alt

    height = {pair.first: pair.first_height for pair in pairs}
    height |= {pair.second: pair.second_height for pair in pairs}
    place = _places(height, pairs)
    nodes: list[Row] = [{"name": name, "x": height[name], "y": place[name]} for name in height]
    lines: list[Row] = [
        {
            "x": height[pair.first],
            "y": place[pair.first],
            "x2": height[pair.second],
            "y2": place[pair.second],
            "verdict": pair.verdict,
            "why": ", ".join(pair.why),
            "edge": int(pair.first_height != pair.second_height),
            "pair": f"{pair.first}, {pair.second}",
        }
        for pair in sorted(pairs, key=lambda pair: pair.verdict == MERGED)
    ]
    verdicts = list(dict.fromkeys(str(line["verdict"]) for line in reversed(lines)))
    others = iter(colours.OF_TYPES)
    palette = [COLOURS.get(verdict) or next(others) for verdict in verdicts]
    axis = alt.Axis(grid=False, values=sorted(set(height.values())), format="d")
    x = alt.X("x:Q", title="height", axis=axis, scale=alt.Scale(padding=30, nice=False, zero=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(padding=30, zero=False))
    drawn = (
        alt.Chart(inline(lines))
        .mark_rule()
        .encode(
            x=x,
            y=y,
            x2="x2:Q",
            y2="y2:Q",
            color=alt.Color(
                "verdict:N",
                title=None,
                scale=alt.Scale(domain=verdicts, range=palette),
                legend=alt.Legend(orient="top", labelLimit=300),
            ),
            strokeWidth=alt.condition(f"datum.verdict == '{MERGED}'", alt.value(6), alt.value(1.5)),
            strokeDash=alt.condition("datum.edge", alt.value([1, 0]), alt.value([5, 4])),
            tooltip=[alt.Tooltip("pair:N"), alt.Tooltip("why:N"), alt.Tooltip("verdict:N")],
        )
    )
    base = alt.Chart(inline(nodes)).encode(x=x, y=y)
    circles = base.mark_circle(size=650, color="white", stroke=colours.OTHER, opacity=1)
    names = base.mark_text(color="black").encode(text="name:N")
    tallest = max(len([1 for at in height.values() if at == level]) for level in height.values())
    return alt.layer(drawn, circles, names).properties(
        title=title, width=LAYER_PIXELS * max(height.values()), height=PLACE_PIXELS * (tallest + 1)
    )


def _places(height: dict[str, int], pairs: Sequence[Pair]) -> dict[str, float]:
    """Return positions of nodes in layers: the barycentre heuristic (Sugiyama et al., 1981)."""
    joined, layers = defaultdict(list), defaultdict(list)
    for pair in pairs:
        joined[pair.first].append(pair.second)
        joined[pair.second].append(pair.first)
    for name, level in height.items():
        layers[level].append(name)
    place = {name: float(k) for names in layers.values() for k, name in enumerate(names)}
    for _ in range(SWEEPS):
        for level, names in layers.items():
            names.sort(
                key=lambda name: sum(place[each] for each in joined[name]) / len(joined[name])
            )
            # Every second layer is shifted by half a place, so that long lines pass between nodes.
            place |= {name: k - len(names) / 2 + 0.5 * (level % 2) for k, name in enumerate(names)}
    return place
