"""The critical path of a schedule: its time by device and link, by cause and by op type."""

from collections.abc import Sequence
from dataclasses import dataclass

from pesto_cli.evaluation.critical_path import CauseFinder, Reason, Segment, SegmentKind
from pesto_cli.report.critical_path import Part, parts, row_of
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.times import TimeScale, time_text

# Number of op types and segments in tables; JSON has all.
NUM_SHOWN = 10


@dataclass(frozen=True)
class PathSegment:
    """A segment of the critical path. op: the op that runs, or the producer of the tensor."""

    kind: SegmentKind
    op: str
    where: str
    start_us: float
    duration_us: float
    why: Reason


@dataclass(frozen=True)
class StepFacts:
    """The parts of the makespan. Each list of sums adds up to it; the largest part comes first.

    by_place: devices, links and waits. by_cause: what the segments had waited for. by_type: op
    types; transfers and waits by their kind. pieces: all segments of the path, first to last.
    """

    makespan_us: float
    by_place: tuple[Part, ...]
    by_cause: tuple[Part, ...]
    by_type: tuple[Part, ...]
    pieces: tuple[PathSegment, ...]


def step_facts(causes: CauseFinder, path: Sequence[Segment]) -> StepFacts:
    """Sum up the critical path of a schedule."""
    problem, schedule = causes.problem, causes.schedule
    graph = problem.graph

    def place(segment: Segment) -> str:
        return row_of(problem, schedule, segment)

    def type_of(segment: Segment) -> str:
        is_op = segment.kind is SegmentKind.OP
        return graph.types[segment.op] or "(no type)" if is_op else f"({segment.kind})"

    return StepFacts(
        makespan_us=schedule.makespan_us,
        by_place=parts(path, place),
        by_cause=parts(path, _waited_for),
        by_type=parts(path, type_of),
        pieces=tuple(
            PathSegment(
                segment.kind,
                graph.names[segment.op],
                place(segment),
                segment.start_us,
                segment.duration_us,
                segment.cause.why,
            )
            for segment in path
        ),
    )


def step_text(facts: StepFacts) -> str:
    """Return a sentence about the whole path."""
    number = len(facts.pieces)
    return (
        f"The last op ends at {time_text(facts.makespan_us)}. The critical path of the schedule "
        f"has {number:,} segment{'' if number == 1 else 's'}: ops, transfers and waits, each "
        "delayed by the one before it.\n"
    )


def step_tables(facts: StepFacts) -> list[Layouts]:
    """Return tables with the parts of the path."""
    scale = TimeScale.of([facts.makespan_us])
    longest = sorted(facts.pieces, key=lambda segment: -segment.duration_us)[:NUM_SHOWN]
    columns = ["op", "what", "where", f"at {scale.unit}", f"takes {scale.unit}"]
    rows = [
        [
            segment.op,
            segment.kind,
            segment.where,
            *map(scale.text, (segment.start_us, segment.duration_us)),
        ]
        for segment in longest
    ]
    return [
        _sums("By device, link and wait", facts.by_place, scale),
        _sums("By what the segments waited for", facts.by_cause, scale),
        _sums("By type", facts.by_type, scale),
        layouts("The longest segments", columns, rows, num_text=3),
    ]


def _sums(title: str, parts: Sequence[Part], scale: TimeScale) -> Layouts:
    total_us = sum(part.time_us for part in parts) or 1.0
    shown = list(parts[:NUM_SHOWN])
    if others := parts[NUM_SHOWN:]:
        count, time_us = sum(p.num_pieces for p in others), sum(p.time_us for p in others)
        shown.append(Part(f"{len(others)} others", count, time_us))
    rows = [
        [
            part.name,
            f"{part.num_pieces:,}",
            scale.text(part.time_us),
            f"{part.time_us / total_us:.1%}",
        ]
        for part in shown
    ]
    return layouts(title, ["", "segments", scale.unit, "share"], rows)


def _waited_for(segment: Segment) -> str:
    if segment.kind not in (SegmentKind.OP, SegmentKind.TRANSFER):
        return "(waits)"
    return {
        Reason.START: "nothing, at the start",
        Reason.PREDECESSOR: "a predecessor on the same device",
        Reason.TRANSFER: "a tensor from another device",
        Reason.SIGNAL: "a signal from another device",
        Reason.DEVICE: "a device that was busy",
        Reason.ORDER: "the execution order of an idle device",
        Reason.LINK: "a link that was busy",
        Reason.SENDER: "a sender that was busy",
    }[segment.cause.why]
