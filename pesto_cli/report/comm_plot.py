"""A chart of measured transfers, the lines fitted to them, and the residuals."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pesto_cli.data.machine import CommModel
from pesto_cli.files import CommFit, LinkKind

if TYPE_CHECKING:
    import altair as alt

# Number of points of a fitted line, at equal ratios between the smallest and largest transfer.
POINTS_OF_A_LINE = 200
# Labels of axes, at powers of ten; those outside of an axis are not drawn.
DECADES = [10.0**power for power in range(-3, 13)]
WIDTH, HEIGHT, RESIDUAL_HEIGHT = 520, 300, 130


class Sample(Protocol):
    """A measured transfer; see `profile.comm`."""

    @property
    def num_bytes(self) -> int:
        """The size of the transfer in bytes."""

    @property
    def us(self) -> float:
        """The time of the transfer in us."""

    @property
    def link_kind(self) -> LinkKind:
        """The kind of the link that it used."""


def comm_chart(samples: Sequence[Sample], fits: Sequence[CommFit]) -> "alt.VConcatChart":
    """Draw times against bytes, both on logarithmic axes, and below the relative residuals."""
    import altair as alt

    comm = {fit.link_kind: fit.comm for fit in fits}
    timed = [sample for sample in samples if sample.num_bytes > 0 and sample.us > 0]
    rows = [
        {
            "link": _name(sample.link_kind),
            "bytes": sample.num_bytes,
            "us": sample.us,
            "residual": sample.us / _us(comm[sample.link_kind], sample.num_bytes) - 1,
        }
        for sample in timed
    ]
    sizes = [sample.num_bytes for sample in timed]
    between = np.geomspace(min(sizes), max(sizes), POINTS_OF_A_LINE)
    lines = [
        {"link": _name(fit.link_kind), "bytes": num_bytes, "us": _us(fit.comm, num_bytes)}
        for fit in fits
        for num_bytes in between.tolist()
    ]
    decades = alt.Axis(format="~s", values=DECADES)
    bytes_ = alt.X("bytes:Q", scale=alt.Scale(type="log"), axis=decades)
    legend = alt.Legend(orient="top-left") if len(fits) > 1 else None
    link = alt.Color("link:N", title=None, legend=legend)
    points = alt.Chart(alt.InlineData(values=rows)).mark_point(filled=True, opacity=0.7, size=40)
    drawn = alt.Chart(alt.InlineData(values=lines)).mark_line()
    us = alt.Y("us:Q", scale=alt.Scale(type="log"), title="us", axis=decades)
    times = alt.layer(
        drawn.encode(x=bytes_.title(None), y=us, color=link),
        points.encode(x=bytes_.title(None), y=us, color=link),
    ).properties(width=WIDTH, height=HEIGHT, title=_title(fits))
    residual = alt.Y("residual:Q", title="measured / fitted - 1", axis=alt.Axis(format="%"))
    zero = alt.Chart(alt.InlineData(values=[{"residual": 0}])).mark_rule().encode(y="residual:Q")
    residuals = alt.layer(
        zero, points.encode(x=bytes_.title("bytes"), y=residual, color=link)
    ).properties(width=WIDTH, height=RESIDUAL_HEIGHT)
    return alt.vconcat(times, residuals)


def _us(comm: CommModel, num_bytes: float) -> float:
    return max(comm.min_us, comm.latency_us + comm.us_per_byte * num_bytes)


def _name(kind: LinkKind) -> str:
    src, dst, channel = kind
    return f"{src} → {dst}" + (f", {channel}" if channel else "")


def _title(fits: Sequence[CommFit]) -> list[str]:
    return [
        f"{_name(fit.link_kind)}: {fit.comm.latency_us:.4g} us + "
        f"{fit.comm.us_per_byte * 1e6:.4g} us per MB"
        + ("" if fit.r_squared is None else f", R² {fit.r_squared:.3f}")
        for fit in fits
    ]
