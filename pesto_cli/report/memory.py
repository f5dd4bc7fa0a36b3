"""The largest tensors and variables on devices whose memory a schedule exceeds."""

from collections.abc import Sequence

from pesto_cli.data.result import Held, MemoryPeak
from pesto_cli.printable import printable
from pesto_cli.report.layouts import layouts, plain_text
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import time_text

# Number of tensors and variables at a peak that are listed.
NUM_NAMED = 5


def memory_text(peaks: Sequence[MemoryPeak]) -> str:
    """Return, for each device, its peak and the largest tensors and variables at that time."""
    return "\n".join(map(_one_device, peaks))


def _one_device(peak: MemoryPeak) -> str:
    rows: list[Sequence[str]] = [
        (held.op, held.what, size_text(held.num_bytes), _since(held))
        for held in peak.held[:NUM_NAMED]
    ]
    others = peak.held[NUM_NAMED:]
    if others:
        size = sum(held.num_bytes for held in others)
        rows.append((f"{len(others):,} others", "", size_text(size), ""))
    shown = plain_text(layouts("", ["largest", "", "size", "since"], rows, num_text=2))
    sentence = (
        f"At {time_text(peak.at_us)} {peak.device} holds {size_text(peak.peak_bytes)}, "
        f"{size_text(peak.resident_bytes)} of it variables; "
        f"{size_text(peak.capacity_bytes)} may be used."
    )
    return f"{printable(sentence)}\n{shown}"


def _since(held: Held) -> str:
    return "throughout" if held.what == "variable" else time_text(held.since_us)
