"""A chart of timeline and memory, one above the other on the same time axis."""

import warnings
from typing import TYPE_CHECKING

from pesto_cli.report.pictures.memory import Curves, memory_chart
from pesto_cli.report.pictures.spans import Drawn
from pesto_cli.report.pictures.timeline import timeline_chart

if TYPE_CHECKING:
    import altair as alt


def over_time_chart(
    drawn: Drawn,
    held: Curves,
    *,
    width: int = 900,
) -> "alt.VConcatChart":
    """Draw both charts; zooming or moving one also zooms or moves the other.

    The page of a report replaces `width` (in pixels), and wraps the legends.
    """
    import altair as alt

    timeline = timeline_chart(drawn, width=width, wrap_legend=False)
    memory = memory_chart(drawn.problem, drawn.schedule, held, width=width)
    with warnings.catch_warnings():
        # altair warns about the shared zoom parameter, which is intended.
        warnings.filterwarnings("ignore", "Automatically deduplicated", UserWarning)
        both: alt.VConcatChart = alt.vconcat(timeline, memory).resolve_scale(color="independent")
    return both
