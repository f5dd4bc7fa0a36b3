"""A chart of the memory of devices over time."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.report.pictures import colours
from pesto_cli.report.pictures.rows import Row, inline
from pesto_cli.report.pictures.zoom import zoom_along_time
from pesto_cli.report.times import TimeScale

if TYPE_CHECKING:
    import altair as alt

GIB = 2**30
# The largest number of time steps; of each step, the largest memory is drawn.
MOST_STEPS = 1000
HEIGHT = 180
# If all peaks are below this share of the usable memory, the axis ends above them.
LOW = 0.2

# For every device: times in us, and the bytes that it holds from each time on.
Curves = Sequence[tuple[FloatArray, IntArray]]


def memory_chart(
    problem: Problem,
    schedule: Schedule,
    held: Curves,
    *,
    title: str = "memory held, as a share of the usable memory",
    width: int | str = 900,
    most_steps: int = MOST_STEPS,
) -> "alt.LayerChart | alt.FacetChart":
    """Draw a line for each device, as a share of its usable memory.

    If all lines are low, the axis ends above them, and the subtitle says so.

    held: the result of `memory.held_over_time`.
    """
    import altair as alt

    scale = TimeScale.of([schedule.makespan_us])
    names = [device.name for device in problem.machine.devices]
    rows = list(_rows(problem, schedule, held, scale, most_steps))
    peak = max(float(row["share"]) for row in rows)
    is_low = 0 < peak < LOW
    until = 1.05 * (peak if is_low else max(1.0, peak))
    heading = alt.Title(title, subtitle=f"axis ends at {100 * until:.2g}%") if is_low else title
    x = alt.X(
        "from:Q",
        title=scale.unit,
        axis=alt.Axis(tickCount=10),
        scale=alt.Scale(domain=[0, (schedule.makespan_us or 1.0) / scale.us_per_unit], nice=False),
    )
    lines = (
        alt.Chart(inline(rows))
        .mark_line(interpolate="step-after", clip=True, strokeWidth=2)
        .encode(
            x=x,
            y=alt.Y(
                "share:Q",
                title=None,
                axis=alt.Axis(format="%", tickCount=5),
                scale=alt.Scale(domain=[0, until], nice=False),
            ),
            color=colours.by_device(names, "stroke"),
            tooltip=[
                alt.Tooltip("device:N"),
                alt.Tooltip("from:Q", title=f"at ({scale.unit})", format=",.4~f"),
                alt.Tooltip("gib:Q", title="holds (GiB)", format=",.4~r"),
                alt.Tooltip("share:Q", title="of usable memory", format=".3~p"),
            ],
        )
    )
    capacity = (
        alt.Chart(inline([{"share": 1}]))
        .mark_rule(color=colours.CRITICAL, strokeDash=[6, 4])
        .encode(y="share:Q")
    )
    drawn = [lines.add_params(zoom_along_time())]
    return alt.layer(*(drawn if is_low else [capacity, *drawn])).properties(
        width=width, height=HEIGHT, title=heading
    )


def _rows(
    problem: Problem, schedule: Schedule, held: Curves, scale: TimeScale, most_steps: int
) -> Iterator[Row]:
    until_us = schedule.makespan_us
    for device, (since_us, num_bytes), capacity in zip(
        problem.machine.devices, held, problem.capacity_bytes.tolist(), strict=True
    ):
        at_us, most = _coarser(since_us, num_bytes, until_us / most_steps)
        for us, size in zip([*at_us, until_us], [*most, int(num_bytes[-1])], strict=True):
            yield {
                "device": device.name,
                "from": round(us / scale.us_per_unit, 6),
                "gib": round(size / GIB, 6),
                "share": size / capacity if capacity else float(size > 0),
            }


def _coarser(
    since_us: FloatArray, num_bytes: IntArray, step_us: float
) -> tuple[list[float], list[int]]:
    """Return times in us, and the largest memory in bytes from each time on, in equal time steps.

    If there are few changes, return all of them unchanged.
    """
    steps = np.floor(since_us / step_us) if step_us > 0 else np.zeros(len(since_us))
    _, first = np.unique(steps, return_index=True)
    if len(first) * 2 > len(since_us):
        return since_us.tolist(), num_bytes.tolist()
    # A step begins with the memory at the end of the step before it.
    before = num_bytes[np.maximum(first - 1, 0)]
    most = np.maximum(np.maximum.reduceat(num_bytes, first), before)
    return (steps[first] * step_us).tolist(), most.tolist()
