"""Small strips that show how busy devices are during a step."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.schedule import Schedule
from pesto_cli.report.page.markup import escape
from pesto_cli.report.pictures.colours import TRANSFER, device_colours

NUM_BINS, SHADES = 120, 10
BIN_PIXELS, ROW_PIXELS, NAME_PIXELS = 4, 14, 70


def busy_strips(schedule: Schedule, names: Sequence[str]) -> str:
    """Return an SVG with a row for each device and one for all transfers; darker means busier."""
    if schedule.makespan_us <= 0:
        return ""
    took_us = schedule.end_us - schedule.start_us
    spans = {
        name: (schedule.start_us[here], schedule.end_us[here], colour)
        for index, (name, colour) in enumerate(zip(names, device_colours(names), strict=True))
        if (took_us[here := schedule.device == index] > 0).any()
    }
    if len(schedule.transfers):
        sent = schedule.transfers
        spans["transfers"] = (sent.start_us, sent.end_us, TRANSFER)
    rows = [
        _row(number, name, busy_shares(start_us, end_us, schedule.makespan_us), colour)
        for number, (name, (start_us, end_us, colour)) in enumerate(spans.items())
    ]
    width, height = NAME_PIXELS + NUM_BINS * BIN_PIXELS, ROW_PIXELS * len(rows)
    return (
        f'<svg role="img" aria-label="how busy devices are over time" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}">{"".join(rows)}</svg>'
    )


def busy_shares(start_us: FloatArray, end_us: FloatArray, until_us: float) -> FloatArray:
    """Return the share of each of `NUM_BINS` equal time intervals that spans cover, at most 1."""
    edges = np.linspace(0.0, until_us, NUM_BINS + 1)
    begun, ended = np.sort(start_us), np.sort(end_us)
    # The time of all spans before each edge: the sum of (edge - start)+ - (edge - end)+.
    before = _sum_before(begun, edges) - _sum_before(ended, edges)
    shares: FloatArray = np.clip(np.diff(before) / (until_us / NUM_BINS), 0.0, 1.0)
    return shares


def _sum_before(times_us: FloatArray, edges: FloatArray) -> FloatArray:
    count = np.searchsorted(times_us, edges)
    total: FloatArray = count * edges - np.append(0.0, np.cumsum(times_us))[count]
    return total


def _row(number: int, name: str, shares: FloatArray, colour: str) -> str:
    top, x = number * ROW_PIXELS, NAME_PIXELS
    parts = [f'<text x="0" y="{top + 10}" font-size="11" fill="currentColor">{escape(name)}</text>']
    for shade, cells in groupby(np.ceil(shares * SHADES).astype(int).tolist()):
        width = BIN_PIXELS * len(list(cells))
        if shade:
            parts.append(
                f'<rect x="{x}" y="{top + 1}" width="{width}" height="{ROW_PIXELS - 2}" '
                f'fill="{colour}" fill-opacity="{shade / SHADES}"/>'
            )
        x += width
    return "".join(parts)
