"""What one placement has otherwise than another."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.symmetry import interchangeable
from pesto_cli.files import PlacementFile


@dataclass(frozen=True)
class Move:
    """An op on another device; both by their names in the second placement."""

    op: str
    src: str
    dst: str


@dataclass(frozen=True)
class PlacementDiff:
    """How a second placement differs from a first.

    renamed: device of the first -> the one of the second that took its part, where names differ.
    num_common: ops in both. moved: of these, those on another device, renaming aside.
    reordered: device of the second -> of the ops on it in both, the fewest without which their
        order is the same.
    """

    renamed: Mapping[str, str]
    num_common: int
    moved: tuple[Move, ...]
    only_in_first: tuple[str, ...]
    only_in_second: tuple[str, ...]
    reordered: Mapping[str, int]


def placement_diff(
    first: PlacementFile, second: PlacementFile, problem: Problem | None = None
) -> PlacementDiff:
    """Compare two placements op by op.

    problem: tells which devices may have changed names; else those of one kind may, which is what
        comes before the colon.
    """
    row_of = {name: row for row, name in enumerate(first.names)}
    pairs = [(row_of[name], row) for row, name in enumerate(second.names) if name in row_of]
    named = _part_of(first, second, pairs, _kind_of(problem))
    moved = tuple(
        Move(second.names[after], named[first.device[before]], second.devices[second.device[after]])
        for before, after in pairs
        if named[first.device[before]] != second.devices[second.device[after]]
    )
    gone_elsewhere = {move.op for move in moved}
    reordered = {}
    for index, device in enumerate(second.devices):
        stayed = [
            (second.rank[after], first.rank[before])
            for before, after in pairs
            if second.device[after] == index and second.names[after] not in gone_elsewhere
        ]
        in_both = [rank for _, rank in sorted(stayed)]
        reordered[device] = len(in_both) - _longest_ascent(in_both)
    common = {second.names[after] for _, after in pairs}
    return PlacementDiff(
        renamed={name: new for name, new in zip(first.devices, named, strict=True) if name != new},
        num_common=len(pairs),
        moved=moved,
        only_in_first=tuple(name for name in first.names if name not in common),
        only_in_second=tuple(name for name in second.names if name not in common),
        reordered=reordered,
    )


def _part_of(
    first: PlacementFile,
    second: PlacementFile,
    pairs: Sequence[tuple[int, int]],
    kind_of: Callable[[str], object],
) -> list[str]:
    """For every device of the first placement, a name: of the one that took its part.

    Devices of one kind may change places where that leaves fewer ops moved: the assignment with
    most ops in common; among equals, the one with most names kept.
    """
    from scipy.optimize import linear_sum_assignment

    shared = np.zeros((len(first.devices), len(second.devices)))
    for before, after in pairs:
        shared[first.device[before], second.device[after]] += 1
    is_same = np.array([[a == b for b in second.devices] for a in first.devices])
    is_alike = np.array([[kind_of(a) == kind_of(b) for b in second.devices] for a in first.devices])
    tie = 1 / (1 + len(first.devices))
    worth = np.where(is_alike, shared + tie * is_same, -len(pairs) - 1.0)
    part_of = {
        first.devices[before]: second.devices[after]
        for before, after in zip(*linear_sum_assignment(worth, maximize=True), strict=True)
        if is_alike[before, after]
    }
    named = [part_of.get(name, name) for name in first.devices]
    # Where a device is gone, another one would have its name.
    return named if len(set(named)) == len(named) else list(first.devices)


def _kind_of(problem: Problem | None) -> Callable[[str], object]:
    if problem is None:
        return lambda device: device.partition(":")[0]
    names = [device.name for device in problem.machine.devices]
    alike = interchangeable(problem)
    class_of = {names[member]: members[0] for members in alike for member in members}
    return lambda device: class_of.get(device, device)


def _longest_ascent(values: Sequence[int]) -> int:
    """Length of the longest increasing subsequence (Schensted, 1961)."""
    tails: list[int] = []
    for value in values:
        place = bisect_left(tails, value)
        tails[place : place + 1] = [value]
    return len(tails)
