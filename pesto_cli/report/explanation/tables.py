"""The explanation of an op as text and tables for a terminal."""

from collections.abc import Iterator, Mapping, Sequence

from pesto_cli.evaluation.critical_path import Reason
from pesto_cli.printable import printable
from pesto_cli.report.explanation.brief import BriefFacts
from pesto_cli.report.explanation.op import OpFacts, Output, Wait
from pesto_cli.report.explanation.split import Membership, SplitFacts
from pesto_cli.report.explanation.what_if import Elsewhere
from pesto_cli.report.explanation.what_if_parts import InParts
from pesto_cli.report.families import Made
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import TimeScale, time_text

# Number of rows of a table, and of names in a line; JSON has all.
NUM_ROWS, NUM_NAMES = 20, 5


def op_text(facts: OpFacts) -> str:
    """Return the facts about the op itself as sentences."""
    scale = _scale(facts.makespan_us)
    lines = [
        f"{facts.name} ({facts.type or 'no type'})",
        f"  runs on {facts.device} from {scale.text(facts.start_us)} to "
        f"{scale.text(facts.end_us)} {scale.unit}, for {time_text(facts.end_us - facts.start_us)}, "
        f"as number {facts.rank + 1:,} of {facts.num_on_device:,}; the step takes "
        f"{scale.text(facts.makespan_us)} {scale.unit}",
        f"  waited for {facts.cause}",
        *(f"  {sentence}" for sentence in _sentences(facts, scale)),
    ]
    return "\n".join(map(printable, lines)) + "\n"


def _sentences(facts: OpFacts, scale: TimeScale) -> Iterator[str]:
    if facts.why in (Reason.DEVICE, Reason.ORDER):
        waited = time_text(facts.start_us - facts.ready_us)
        idle = f"; the device was idle for {time_text(facts.idle_us)} of this time"
        idle *= facts.why is Reason.ORDER
        yield (
            f"was ready at {scale.text(facts.ready_us)} {scale.unit}, {waited} before "
            f"{facts.device} started it{idle}"
        )
    critical = "is" if facts.is_critical else "is not"
    yield f"{critical} on the critical path of the schedule, which determines the step time"
    if facts.lost_us > 0:
        yield f"ended {time_text(facts.lost_us)} later because of transfers of its device"
    if facts.contended_us > 0:
        longer = f"ran {time_text(facts.contended_us)} longer"
        yield f"{longer} because other devices of its host computed meanwhile (contention)"
    if facts.split is not None:
        yield member_text(facts.split)
    if facts.resident_bytes:
        yield f"keeps {size_text(facts.resident_bytes)} of variables"
    if facts.alias_of is not None:
        yield f"stores its output in the memory of {facts.alias_of}"
    if facts.group:
        yield (
            f"shares its device with {len(facts.group)} more of its colocation group "
            f"({size_text(facts.group_resident_bytes)} of variables in total): "
            f"{_names(facts.group)}"
        )


def member_text(split: Membership) -> str:
    """Return what an op of a split graph is, and for which op."""
    has = "has {} copies" if split.is_copied else "is split into {} parts"
    of = f"{split.op}, which {has.format(split.num_parts)}"
    return {
        Made.PART: f"is {'copy' if split.is_copied else 'part'} {split.part} of {of}",
        Made.SHARED: f"computes for all parts of {of}",
        Made.SUM: f"was added by the plan: it combines the partial outputs of {of}",
        Made.CONVERSION: "was added by the plan: it cuts, joins or copies an output of "
        + (of if split.num_parts > 1 else split.op),
    }[split.made]


def split_text(facts: SplitFacts) -> str:
    """Return the facts about an op that was split as sentences."""
    scale = _scale(facts.makespan_us)
    start_us = min((part.start_us for part in facts.parts), default=0.0)
    end_us = max((part.end_us for part in facts.parts), default=0.0)
    devices = dict.fromkeys(part.device for part in facts.parts)
    several = "copies" if facts.is_copied else "parts"
    lines = [
        f"{facts.name} ({facts.type or 'no type'})",
        f"  {_way_text(facts)}",
        f"  its {several} run on {', '.join(devices)} from {scale.text(start_us)} to "
        f"{scale.text(end_us)} {scale.unit}; the step takes {scale.text(facts.makespan_us)} "
        f"{scale.unit}",
        f"  on the critical path of the schedule: {_names(facts.critical) or 'none of its ops'}",
        *(f"  {sentence}" for there in facts.what_if for sentence in _what_if_text(facts, there)),
    ]
    return "\n".join(map(printable, lines)) + "\n"


def _way_text(facts: SplitFacts) -> str:
    number = len(facts.sizes)
    if facts.is_copied:
        return f"is {facts.alternative}: it has {number} copies"
    sizes = f", of sizes {', '.join(map(str, facts.sizes))}" if max(facts.sizes) > 1 else ""
    return f"is split into {number} parts by {facts.alternative!r}{sizes}"


def _what_if_text(facts: SplitFacts, there: InParts) -> Iterator[str]:
    number = f"{there.num_parts:,} {'copies' if facts.is_copied else 'parts'}"
    where, state = (
        ("whole", "be whole") if there.num_parts == 1 else (f"in {number}", f"have {number}")
    )
    if there.why_not is not None:
        yield f"{where}: {there.why_not}"
    if there.changed:
        ops = "op" if len(there.changed) == 1 else "ops"
        names = _names(there.changed)
        yield f"{where}: {len(there.changed):,} other {ops} must {state}, too: {names}"


def _number(num_parts: int) -> str:
    return "whole" if num_parts == 1 else f"{num_parts:,}"


def split_tables(facts: SplitFacts) -> list[Layouts]:
    """Return tables of the parts of an op, the ops that the plan adds for it, and its prices."""
    titles = {
        "Its copies" if facts.is_copied else "Its parts": facts.parts,
        "Added for its inputs": facts.for_inputs,
        "Added to combine its partial outputs": facts.sums,
        "Added to cut, join or copy its outputs": facts.conversions,
    }
    tables = [brief_table(briefs, title) for title, briefs in titles.items() if briefs]
    tables += [_prices(facts)] if facts.prices else []
    possible = [there for there in facts.what_if if there.why_not is None]
    return [*tables, *([_what_if(facts, possible)] if possible else [])]


def _prices(facts: SplitFacts) -> Layouts:
    scale = _scale(0.0)
    one, several = ("copy", "copies") if facts.is_copied else ("part", "parts")
    rows = [
        [
            _number(price.num_parts),
            scale.text(price.part_us),
            scale.text(price.work_us),
            "now" if price.is_now else "",
        ]
        for price in facts.prices
    ]
    title = f"Its time by the number of {several}, on {facts.price_device}, without the added ops"
    columns = [several, f"longest {one} {scale.unit}", f"all {several} {scale.unit}", ""]
    return layouts(title, columns, rows)


def _what_if(facts: SplitFacts, possible: Sequence[InParts]) -> Layouts:
    scale = _scale(facts.makespan_us)
    rows = [
        [
            _number(there.num_parts),
            _memory(there.short_bytes or {}),
            _makespan(there.makespan_us or 0.0, facts.makespan_us, scale),
            _more(added_us, time_text(abs(added_us))),
            _more(num_bytes, size_text(abs(num_bytes))),
        ]
        for there in possible
        for added_us, num_bytes in [(there.more_added_us or 0.0, there.more_sent_bytes or 0)]
    ]
    several = "copies" if facts.is_copied else "parts"
    title = f"What-if: the step with it in other numbers of {several}, in the present order"
    columns = [several, "memory", f"step {scale.unit}", "added ops", "sent"]
    return layouts(title, columns, rows, num_text=2)


def _more(change: float, amount: str) -> str:
    """Return a change as text; less than 0.001 is rounding. amount: its absolute value."""
    return f"{'-' if change < 0 else '+'}{amount}" if round(change, 3) else "the same"


def op_tables(facts: OpFacts) -> list[Layouts]:
    """Return tables of the waits before and after the op, its tensors, and other devices."""
    scale = _scale(facts.makespan_us)
    tables = [
        _waits("What it waited for", "available at", "last", facts.waited_for, scale),
        _waits("What waits for it", "starts at", "delayed", facts.followers, scale),
        _outputs(facts.outputs, scale),
        _elsewhere(facts, scale),
    ]
    return [table for table in tables if table is not None]


def brief_table(briefs: Sequence[BriefFacts], title: str) -> Layouts:
    """Return a table with one line for each op."""
    scale = _scale(briefs[-1].end_us)
    rows = [
        [
            brief.op,
            brief.type,
            brief.device,
            brief.why,
            scale.text(brief.start_us),
            scale.text(brief.end_us - brief.start_us),
        ]
        for brief in briefs[:NUM_ROWS]
    ]
    columns = ["op", "type", "device", "waited for", f"start {scale.unit}", f"takes {scale.unit}"]
    return layouts(title, columns, _cut(rows, len(briefs)), num_text=4)


def _cut(rows: list[list[str]], count: int) -> list[list[str]]:
    """Add a last line with the number of rows that are not shown."""
    more = count - len(rows)
    return [*rows, [f"{more:,} others", *[""] * (len(rows[0]) - 1)]] if more else rows


WORDS = {
    Reason.PREDECESSOR: "same device",
    Reason.TRANSFER: "transfer",
    Reason.SIGNAL: "signal",
    Reason.DEVICE: "order",
    Reason.ORDER: "order",
}


def _waits(
    title: str, when: str, mark: str, waits: Sequence[Wait], scale: TimeScale
) -> Layouts | None:
    if not waits:
        return None
    rows = [
        [
            wait.op,
            wait.device,
            WORDS[wait.why],
            "" if wait.num_bytes is None else size_text(wait.num_bytes),
            scale.text(wait.at_us),
            mark if wait.was_last else "",
        ]
        for wait in waits[:NUM_ROWS]
    ]
    columns = ["op", "on", "via", "size", f"{when} {scale.unit}", ""]
    return layouts(title, columns, _cut(rows, len(waits)), num_text=3)


def _outputs(outputs: Sequence[Output], scale: TimeScale) -> Layouts | None:
    """Return a table of the output tensors, those with transfers first; None without outputs."""
    if not outputs:
        return None
    rows = []
    for output in sorted(outputs, key=lambda output: not output.sent):
        tensor = [size_text(output.num_bytes), f"{len(output.consumers):,}"]
        for sent in output.sent:
            times = map(scale.text, (sent.made_us, sent.start_us, sent.end_us))
            rows.append([sent.link, sent.waited_for or "", *tensor, *times])
        if not output.sent:
            rows.append(["", "", *tensor, "", "", ""])
    columns = ["sent on", "waited for", "size", "consumers", "queued", "started", "arrived"]
    columns[-1] += f" {scale.unit}"
    if not any(output.sent for output in outputs):
        rows, columns = [row[2:4] for row in rows], columns[2:4]
    return layouts(
        "Its output tensors", columns, _cut(rows[:NUM_ROWS], len(rows)), num_text=len(columns) - 5
    )


def _elsewhere(facts: OpFacts, scale: TimeScale) -> Layouts:
    what = f"it and the {len(facts.group)} ops of its group" if facts.group else "it"
    rows = []
    for there in facts.elsewhere:
        name = f"{there.device} (now)" if there.is_here else there.device
        if there.why_not is not None:
            rows.append([name, there.why_not, "", "", ""])
            continue
        makespans_us = (there.kept_us or 0.0, there.dispatched_us or 0.0)
        times = [_makespan(makespan_us, facts.makespan_us, scale) for makespan_us in makespans_us]
        rows.append(
            [name, _memory(_larger_shortfall(there)), time_text(there.duration_us or 0.0), *times]
        )
    columns = ["device", "memory", "op takes", "order kept", "dispatched again"]
    title = f"What-if: the step time in {scale.unit} with {what} on each device"
    return layouts(title, columns, rows, num_text=2)


def _makespan(makespan_us: float, now_us: float, scale: TimeScale) -> str:
    change = (makespan_us / now_us - 1) if now_us else 0.0
    return f"{scale.text(makespan_us)} ({change:+.1%})"


def _larger_shortfall(there: Elsewhere) -> dict[str, int]:
    """Return the larger memory shortfall of the two orders for each device."""
    short: dict[str, int] = {}
    for each in (there.kept_short_bytes, there.dispatched_short_bytes):
        for name, size in (each or {}).items():
            short[name] = max(size, short.get(name, 0))
    return short


def _memory(short: Mapping[str, int]) -> str:
    """Return the memory shortfall of devices, or `fits`."""
    lacking = ", ".join(f"{name} {size_text(size)} short" for name, size in short.items())
    return f"OOM: {lacking}" if lacking else "fits"


def _scale(makespan_us: float) -> TimeScale:
    """Return a time scale that is fine enough for a short op in a long step."""
    return TimeScale.of([makespan_us, 100.0])


def _names(names: Sequence[str]) -> str:
    more = len(names) - NUM_NAMES
    return ", ".join(names[:NUM_NAMES]) + (f" and {more:,} more" if more > 0 else "")
