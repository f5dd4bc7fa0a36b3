"""Parts of the critical path of a schedule, by a common name, and the sums of their times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule


class PathSegment(Protocol):
    """A segment of the critical path of a schedule: an op, a transfer or a wait."""

    @property
    def kind(self) -> str:
        """`op` or `transfer`; for a wait `signal` or `sender`."""

    @property
    def op(self) -> int:
        """The index of the op that runs, or of the producer of the tensor."""

    @property
    def transfer(self) -> int:
        """The index of the transfer, if the segment is one."""

    @property
    def start_us(self) -> float:
        """The start of the segment."""

    @property
    def end_us(self) -> float:
        """The end of the segment."""


def row_of(problem: Problem, schedule: Schedule, segment: PathSegment) -> str:
    """Return the device or channel that is busy with a segment; for a wait, its reason."""
    device = int(schedule.device[segment.op])
    if segment.kind == "op":
        return problem.machine.devices[device].name
    if segment.kind == "transfer":
        dst = int(schedule.transfers.dst[segment.transfer])
        return problem.machine.channel_names[int(problem.machine.channel[device, dst])]
    return WAITS.get(segment.kind, segment.kind)


WAITS = {"signal": "signals between devices", "sender": "waits for busy senders"}


@dataclass(frozen=True)
class Part:
    """Segments of the critical path that have something in common, and the sum of their times."""

    name: str
    num_pieces: int
    time_us: float


SegmentType = TypeVar("SegmentType", bound=PathSegment)


def parts(path: Sequence[SegmentType], name_of: Callable[[SegmentType], str]) -> tuple[Part, ...]:
    """Sum up the segments by name; the largest sum comes first."""
    found: dict[str, tuple[int, float]] = {}
    for segment in path:
        name = name_of(segment)
        count, time_us = found.get(name, (0, 0.0))
        found[name] = count + 1, time_us + (segment.end_us - segment.start_us)
    sums = [Part(name, *numbers) for name, numbers in found.items()]
    return tuple(sorted(sums, key=lambda part: (-part.time_us, part.name)))
