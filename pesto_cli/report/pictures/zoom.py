"""Zooming and panning along the time axis only."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

# With a key, because the wheel alone scrolls the page. Two fingers on a touchpad send Ctrl + wheel.
WHEEL = "wheel![event.ctrlKey || event.metaKey]"


def zoom_along_time() -> "alt.Parameter":
    """Return the zoom parameter. Combined charts share it: all have their time in field `from`."""
    import altair as alt

    return alt.selection_interval(name="zoom", bind="scales", encodings=["x"], zoom=WHEEL)
