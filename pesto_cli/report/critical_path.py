"""The critical path of a schedule, as reports read it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule


class PathSegment(Protocol):
    """A part of the critical chain: an op, a transfer or a wait."""

    @property
    def kind(self) -> str:
        """`op`, `transfer`, or what else was waited for: `signal`, `sender`."""

    @property
    def op(self) -> int:
        """Which one runs, or made what is sent."""

    @property
    def transfer(self) -> int:
        """Which one it is, if so."""

    @property
    def start_us(self) -> float:
        """When it begins."""

    @property
    def end_us(self) -> float:
        """When it ends."""


def row_of(problem: Problem, schedule: Schedule, piece: PathSegment) -> str:
    """The device or channel that is busy with a piece; for a wait, what for."""
    device = int(schedule.device[piece.op])
    if piece.kind == "op":
        return problem.machine.devices[device].name
    if piece.kind == "transfer":
        dst = int(schedule.transfers.dst[piece.transfer])
        return problem.machine.channel_names[int(problem.machine.channel[device, dst])]
    return WAITS.get(piece.kind, piece.kind)


WAITS = {"signal": "signals between devices", "sender": "senders that compute"}


@dataclass(frozen=True)
class Part:
    """Pieces of the critical chain that have something in common."""

    name: str
    num_pieces: int
    time_us: float


SegmentType = TypeVar("SegmentType", bound=PathSegment)


def parts(chain: Sequence[SegmentType], name_of: Callable[[SegmentType], str]) -> tuple[Part, ...]:
    """The pieces of each name together, the most time first."""
    found: dict[str, tuple[int, float]] = {}
    for piece in chain:
        name = name_of(piece)
        count, time_us = found.get(name, (0, 0.0))
        found[name] = count + 1, time_us + (piece.end_us - piece.start_us)
    sums = [Part(name, *numbers) for name, numbers in found.items()]
    return tuple(sorted(sums, key=lambda part: (-part.time_us, part.name)))
