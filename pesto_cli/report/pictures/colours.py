"""Colours that can be told apart on light and on dark ground."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

CRITICAL = "#e6194b"
TRANSFER = "#f2a900"
OTHER = "#9aa0a6"
# Tableau 10 without the red, the orange and the grey, which mean something else here.
OF_TYPES = ("#4e79a7", "#59a14f", "#b07aa1", "#76b7b2", "#9c755f", "#ff9da7", "#8cd17d")
# Devices are told apart more strongly: Paul Tol's bright scheme and its vibrant neighbours.
OF_DEVICES = (
    "#8d99ae",
    "#3a86ff",
    "#fb8500",
    "#2a9d4a",
    "#c77dff",
    "#e05780",
    "#00a6a6",
    "#bc8a3c",
    "#5e60ce",
    "#90be6d",
)


def device_colours(names: Sequence[str]) -> list[str]:
    """A colour for every device, by its index."""
    return [OF_DEVICES[index % len(OF_DEVICES)] for index in range(len(names))]


def by_device(names: Sequence[str], symbol: str) -> "alt.Color":
    """The colour of a mark by its row's device, with a legend of such symbols."""
    import altair as alt

    return alt.Color(
        "device:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names, range=device_colours(names)),
        legend=alt.Legend(orient="top", symbolType=symbol),
    )
