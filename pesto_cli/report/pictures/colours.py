"""Colours that differ clearly on light and on dark background."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

CRITICAL = "#e6194b"
TRANSFER = "#f2a900"
OTHER = "#9aa0a6"
# Ops that a plan adds: conversions of tensors, and sums of partial tensors.
CONVERSION = "#00a5c8"
SUM = "#9440e0"
# A node whose work is on several devices.
SEVERAL = "#a1785c"
# Tableau 10 without red, orange and grey, which have other meanings here.
OF_TYPES = ("#4e79a7", "#59a14f", "#b07aa1", "#76b7b2", "#9c755f", "#ff9da7", "#8cd17d")
# Devices have stronger contrasts: Paul Tol's bright scheme and similar vibrant colours.
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
    """Return a colour for every device, by its index."""
    return [OF_DEVICES[index % len(OF_DEVICES)] for index in range(len(names))]


def by_device(
    names: Sequence[str], symbol: str, others: Mapping[str, str] = MappingProxyType({})
) -> "alt.Color":
    """Return the colour encoding of marks by device, with a legend of the given symbol.

    others: the colours of names that are no devices.
    """
    import altair as alt

    colour_of = dict(zip(names, device_colours(names), strict=True)) | dict(others)
    return alt.Color(
        "device:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names, range=list(colour_of.values())),
        legend=alt.Legend(orient="top", symbolType=symbol),
    )
