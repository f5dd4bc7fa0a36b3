"""A chart of a small graph in layers: ops by height, coloured by device."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray, OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.report.pictures import colours
from pesto_cli.report.pictures.rows import Row, inline
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import time_text

if TYPE_CHECKING:
    import altair as alt

HEIGHT = 380
# The area of the largest circle, and the padding of the axes, which is about its radius.
LARGEST = 700
PADDING_PIXELS = 16
SEVERAL = "several devices"
# Number of sweeps of the barycentre heuristic.
SWEEPS = 8


def layers_chart(
    problem: Problem,
    device: IntArray,
    *,
    title: str = "",
    width: int | str = 900,
    notes: Sequence[str] | None = None,
    several: BoolArray | None = None,
) -> "alt.LayerChart | alt.FacetChart":
    """Draw nodes from left to right by height; their area shows their time, and lines are data.

    device: the device of every op, `[num_ops]`. notes: a text for the tooltip of every op. several:
    `[num_ops]`, whether the work of a node is spread over several devices; such nodes have a colour
    of their own, and data between them are not marked as sent.
    """
    import altair as alt

    names = [row.name for row in problem.machine.devices]
    if several is not None and several.any():
        names, device = [*names, SEVERAL], np.where(several, len(names), device)
    layer = problem.graph.heights
    place = _places(problem.graph, layer, device)
    x, y = _axes(layer, place)
    ways = list(_lines(problem.graph, layer, place, device, names))
    nodes = list(_nodes(problem, layer, place, device, names, notes))
    lines, points = _drawn_lines(ways, x, y), _drawn_nodes(nodes, names, x, y)
    return alt.layer(lines, points).properties(width=width, height=HEIGHT, title=title)


def _nodes(
    problem: Problem,
    layer: IntArray,
    place: FloatArray,
    device: IntArray,
    names: Sequence[str],
    notes: Sequence[str] | None,
) -> Iterator[Row]:
    """Yield the ops, the longest first, so that small ones are drawn on top."""
    graph = problem.graph
    has_one = device < problem.num_devices
    us = problem.duration_us[np.arange(problem.num_ops), np.where(has_one, device, 0)]
    # The device of a coarse node has most of its work, but some of its ops may not run there.
    us = np.where(has_one & np.isfinite(us), us, problem.min_duration_us)
    for op in np.argsort(-us, kind="stable").tolist():
        yield {
            "layer": int(layer[op]),
            "place": float(place[op]),
            "device": names[device[op]],
            "name": graph.names[op],
            "us": float(us[op]),
            "time": time_text(float(us[op])),
            "ops": int(graph.num_members[op]),
            "note": notes[op] if notes else graph.types[op],
        }


def _axes(layer: IntArray, place: FloatArray) -> tuple[Any, Any]:
    import altair as alt

    highest = int(layer.max(initial=0))
    within = f"datum.value > 0 && datum.value <= {highest} ? datum.label : ''"
    x = alt.X(
        "layer:Q",
        title="height",
        axis=alt.Axis(grid=False, ticks=False, tickMinStep=1, labelExpr=within),
        scale=alt.Scale(domain=[0.5, highest + 0.5], nice=False, padding=PADDING_PIXELS),
    )
    low, high = float(place.min(initial=0.0)) - 0.7, float(place.max(initial=0.0)) + 0.7
    y = alt.Y(
        "place:Q",
        axis=None,
        scale=alt.Scale(domain=[low, high], nice=False, padding=PADDING_PIXELS),
    )
    return x, y


def _drawn_lines(ways: Sequence[Row], x: Any, y: Any) -> Any:
    import altair as alt

    largest = max([1.0, *(float(way["bytes"]) for way in ways)])
    return (
        alt.Chart(inline(ways))
        .mark_rule()
        .encode(
            x=x,
            x2="layer2:Q",
            y=y,
            y2="place2:Q",
            color=alt.condition(
                "datum.crosses", alt.value(colours.TRANSFER), alt.value(colours.OTHER)
            ),
            opacity=alt.condition("datum.crosses", alt.value(0.45), alt.value(0.25)),
            strokeWidth=alt.StrokeWidth(
                "bytes:Q",
                legend=None,
                scale=alt.Scale(type="sqrt", domain=[0, largest], range=[0.4, 3]),
            ),
            tooltip=[alt.Tooltip("way:N", title="data"), alt.Tooltip("size:N")],
        )
    )


def _drawn_nodes(nodes: Sequence[Row], names: Sequence[str], x: Any, y: Any) -> Any:
    import altair as alt

    return (
        alt.Chart(inline(nodes))
        .mark_circle(opacity=1, stroke="white", strokeWidth=0.7)
        .encode(
            x=x,
            y=y,
            size=alt.Size("us:Q", legend=None, scale=alt.Scale(range=[30, LARGEST])),
            color=colours.by_device(
                names, "circle", {SEVERAL: colours.SEVERAL} if SEVERAL in names else {}
            ),
            tooltip=[
                alt.Tooltip("name:N", title="op"),
                alt.Tooltip("ops:Q", title="stands for ops"),
                alt.Tooltip("device:N"),
                alt.Tooltip("time:N", title="takes"),
                alt.Tooltip("note:N", title=" "),
            ],
        )
    )


def _places(graph: OpGraph, layer: IntArray, device: IntArray) -> FloatArray:
    """Return the position of each op in its layer: near its neighbours, at least 1 apart.

    This is the barycentre heuristic (Sugiyama et al., 1981), with forward and backward sweeps.
    """
    layers = [np.flatnonzero(layer == height) for height in range(1, layer.max(initial=0) + 1)]
    place = np.zeros(graph.num_ops)
    for ops in layers:
        place[ops[np.argsort(device[ops], kind="stable")]] = np.arange(len(ops)) - len(ops) / 2
    for sweep in range(SWEEPS):
        is_forth = sweep % 2 == 0
        neighbours = graph.predecessors if is_forth else graph.successors
        for ops in layers if is_forth else layers[::-1]:
            wanted = np.array(
                [
                    place[neighbours[op]].mean() if len(neighbours[op]) else place[op]
                    for op in ops.tolist()
                ]
            )
            order = np.lexsort((place[ops], wanted))
            # Move each op to at least 1 after the one before it, then move all back by the mean.
            steps = np.arange(len(ops))
            apart = np.maximum.accumulate(wanted[order] - steps) + steps
            place[ops[order]] = apart - (apart - wanted[order]).mean()
    return place


def _lines(
    graph: OpGraph, layer: IntArray, place: FloatArray, device: IntArray, names: Sequence[str]
) -> Iterator[Row]:
    """Yield data edges between ops; those between devices come last, to be drawn on top."""
    num_bytes: dict[tuple[int, int], int] = {}
    for tensor, after in zip(graph.consumer_tensor.tolist(), graph.consumers.tolist(), strict=True):
        key = (int(graph.tensor_producer[tensor]), after)
        num_bytes[key] = num_bytes.get(key, 0) + int(graph.tensor_bytes[tensor])
    ways = sorted(num_bytes, key=lambda way: bool(device[way[0]] != device[way[1]]))
    for before, after in ways:
        yield {
            "layer": int(layer[before]),
            "place": float(place[before]),
            "layer2": int(layer[after]),
            "place2": float(place[after]),
            "crosses": int(device[before] != device[after]),
            "way": f"{names[device[before]]} -> {names[device[after]]}",
            "bytes": num_bytes[before, after],
            "size": size_text(num_bytes[before, after]),
        }
