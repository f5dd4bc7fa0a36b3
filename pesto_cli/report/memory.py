"""What fills the devices whose memory a schedule exceeds."""

from collections.abc import Sequence

from rich.text import Text

from pesto_cli.report.tables import rendered, size_text, table
from pesto_cli.result import Held, MemoryPeak

# How many of the tensors and variables at a peak are named.
NUM_NAMED = 5


def memory_text(peaks: Sequence[MemoryPeak]) -> str:
    """For each device: its peak, and the largest tensors and variables that it holds then."""
    return "\n".join(map(_one_device, peaks))


def _one_device(peak: MemoryPeak) -> str:
    shown = table("", ["the largest", "", "size", "since"])
    shown.columns[1].justify = "left"
    # Long names take several lines, so that the other columns keep their width.
    shown.columns[0].no_wrap, shown.columns[0].overflow = False, "fold"
    for held in peak.held[:NUM_NAMED]:
        shown.add_row(Text(held.op), held.what, size_text(held.num_bytes), _since(held))
    others = peak.held[NUM_NAMED:]
    if others:
        size = sum(held.num_bytes for held in others)
        shown.add_row(f"{len(others):,} others", "", size_text(size), "")
    return (
        f"At {peak.at_us / 1e3:.3f} ms {peak.device} holds {size_text(peak.peak_bytes)}, "
        f"{size_text(peak.resident_bytes)} of it variables; "
        f"{size_text(peak.capacity_bytes)} may be used.\n{rendered(shown)}"
    )


def _since(held: Held) -> str:
    return "throughout" if held.what == "variable" else f"{held.since_us / 1e3:.3f} ms"
