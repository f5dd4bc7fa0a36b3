"""Timeline and memory, one below the other on one scale of time."""

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
    """Both charts; to zoom or move one is to zoom or move the other."""
    import altair as alt

    timeline = timeline_chart(drawn, width=width)
    memory = memory_chart(drawn.problem, drawn.schedule, held, width=width)
    with warnings.catch_warnings():
        # That both charts have the same zoom is meant.
        warnings.filterwarnings("ignore", "Automatically deduplicated", UserWarning)
        both: alt.VConcatChart = alt.vconcat(timeline, memory).resolve_scale(color="independent")
    return both
