"""Zoom and pan along time, and along it alone."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

# With a key, as the wheel alone moves the page. Two fingers on a touchpad come as Ctrl and wheel.
WHEEL = "wheel![event.ctrlKey || event.metaKey]"


def zoom_along_time() -> "alt.Parameter":
    """Pictures that are put together share it: all have their time in the field `from`."""
    import altair as alt

    return alt.selection_interval(name="zoom", bind="scales", encodings=["x"], zoom=WHEEL)
