"""Where a step's time goes: the critical chain by device and link, by reason and by op type."""

from collections.abc import Sequence
from dataclasses import dataclass

from pesto_cli.evaluation.critical_path import CauseFinder, Reason, Segment, SegmentKind
from pesto_cli.report.critical_path import Part, parts, row_of
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.times import TimeScale, time_text

# How many op types and pieces a person is shown.
NUM_SHOWN = 10


@dataclass(frozen=True)
class PathSegment:
    """A piece of the critical chain. op: which one runs, made what is sent, or is waited for."""

    kind: SegmentKind
    op: str
    where: str
    start_us: float
    duration_us: float
    why: Reason


@dataclass(frozen=True)
class StepFacts:
    """What the makespan is made of; each of the sums adds up to it, the most first.

    by_place: devices, links and waits. by_cause: what the pieces had waited for. by_type: op
    types; transfers and waits by their kind. pieces: the chain itself, first to last.
    """

    makespan_us: float
    by_place: tuple[Part, ...]
    by_cause: tuple[Part, ...]
    by_type: tuple[Part, ...]
    pieces: tuple[PathSegment, ...]


def step_facts(causes: CauseFinder, chain: Sequence[Segment]) -> StepFacts:
    """Sum up the chain of a schedule."""
    problem, schedule = causes.problem, causes.schedule
    graph = problem.graph

    def place(piece: Segment) -> str:
        return row_of(problem, schedule, piece)

    def type_of(piece: Segment) -> str:
        is_op = piece.kind is SegmentKind.OP
        return graph.types[piece.op] or "(no type)" if is_op else f"({piece.kind})"

    return StepFacts(
        makespan_us=schedule.makespan_us,
        by_place=parts(chain, place),
        by_cause=parts(chain, _waited_for),
        by_type=parts(chain, type_of),
        pieces=tuple(
            PathSegment(
                piece.kind,
                graph.names[piece.op],
                place(piece),
                piece.start_us,
                piece.duration_us,
                piece.cause.why,
            )
            for piece in chain
        ),
    )


def step_text(facts: StepFacts) -> str:
    """The chain as a whole, in a sentence."""
    return (
        f"The last op ends at {time_text(facts.makespan_us)}, after a chain of "
        f"{len(facts.pieces):,} ops, transfers and waits, each of which held up the next one.\n"
    )


def step_tables(facts: StepFacts) -> list[Layouts]:
    """What the chain is made of."""
    scale = TimeScale.of([facts.makespan_us])
    longest = sorted(facts.pieces, key=lambda piece: -piece.duration_us)[:NUM_SHOWN]
    columns = ["op", "what", "where", f"at {scale.unit}", f"takes {scale.unit}"]
    rows = [
        [piece.op, piece.kind, piece.where, *map(scale.text, (piece.start_us, piece.duration_us))]
        for piece in longest
    ]
    return [
        _sums("Where they are", facts.by_place, scale),
        _sums("What they had waited for", facts.by_cause, scale),
        _sums("What they are", facts.by_type, scale),
        layouts("The longest", columns, rows, num_text=3),
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
    return layouts(title, ["", "pieces", scale.unit, "share"], rows)


def _waited_for(piece: Segment) -> str:
    if piece.kind not in (SegmentKind.OP, SegmentKind.TRANSFER):
        return "(waits themselves)"
    return {
        Reason.START: "nothing, at the start",
        Reason.PREDECESSOR: "a predecessor on the same device",
        Reason.TRANSFER: "a tensor from another device",
        Reason.SIGNAL: "a signal from another device",
        Reason.DEVICE: "a device that was busy",
        Reason.ORDER: "the order: its device was idle",
        Reason.LINK: "a link that was busy",
        Reason.SENDER: "a sender that computed",
    }[piece.cause.why]
