"""The colours of op types, of ops that a plan adds, and of transfers."""

from collections.abc import Iterable

from pesto_cli.report.families import NAMES, Made
from pesto_cli.report.pictures import colours
from pesto_cli.report.pictures.spans import TRANSFER, Bar

OTHER = "other types"
WITHOUT_TYPE = {
    NAMES[Made.CONVERSION]: colours.CONVERSION,
    NAMES[Made.SUM]: colours.SUM,
    TRANSFER: colours.TRANSFER,
}


def type_colours(bars: Iterable[Bar]) -> dict[str, str]:
    """Return the colours of the op types with most time, then of all else, in legend order."""
    time_us: dict[str, float] = {}
    for bar in bars:
        time_us[bar.kind] = time_us.get(bar.kind, 0.0) + bar.took_us
    last = {kind: colour for kind, colour in WITHOUT_TYPE.items() if time_us.pop(kind, None)}
    first = sorted(time_us, key=lambda name: -time_us[name])[: len(colours.OF_TYPES)]
    found = dict(zip(first, colours.OF_TYPES, strict=False))
    if len(time_us) > len(first) or not found:  # an empty legend cannot be drawn
        found[OTHER] = colours.OTHER
    return found | last
