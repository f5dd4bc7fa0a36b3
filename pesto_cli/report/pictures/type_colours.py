"""The colours of op types and transfers."""

from collections.abc import Iterable

from pesto_cli.report.pictures import colours
from pesto_cli.report.pictures.spans import TRANSFER, Bar

OTHER = "other types"


def type_colours(bars: Iterable[Bar]) -> dict[str, str]:
    """Return the colours of the op types with most time, and of transfers, in legend order."""
    time_us: dict[str, float] = {}
    for bar in bars:
        time_us[bar.type] = time_us.get(bar.type, 0.0) + bar.took_us
    has_transfers = time_us.pop(TRANSFER, None) is not None
    first = sorted(time_us, key=lambda name: -time_us[name])[: len(colours.OF_TYPES)]
    found = dict(zip(first, colours.OF_TYPES, strict=False))
    if len(time_us) > len(first) or not found:  # an empty legend cannot be drawn
        found[OTHER] = colours.OTHER
    if has_transfers:
        found[TRANSFER] = colours.TRANSFER
    return found
