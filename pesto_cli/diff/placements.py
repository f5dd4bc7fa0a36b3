"""Differences between two placements."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.symmetry import interchangeable
from pesto_cli.diff.plans import OtherSplit, split_otherwise
from pesto_cli.files import PlacementFile

LEAST_SHARE_IN_BOTH = 0.1
"""If a smaller share of the ops is in both placements, they are placements of two models."""


@dataclass(frozen=True)
class Move:
    """An op with different devices in the two placements; names are those of the second."""

    op: str
    src: str
    dst: str


@dataclass(frozen=True)
class PlacementDiff:
    """The differences between a first and a second placement.

    renamed: device of the first -> matched device of the second, if their names differ.
    num_common: number of placed ops in both. Parts are ops here; a whole op and the op that merges
        its parts are not the same.
    moved: placed ops in both that are not on the matched device.
    only_in_first, only_in_second: ops of only one of the graphs, before ops were split.
    reordered: device of the second -> least number of its common ops whose removal makes the two
        orders equal.
    split: ops that only one of the placements splits, or that they split in different ways.
    """

    renamed: Mapping[str, str]
    num_common: int
    moved: tuple[Move, ...]
    only_in_first: tuple[str, ...]
    only_in_second: tuple[str, ...]
    reordered: Mapping[str, int]
    split: tuple[OtherSplit, ...] = ()

    @property
    def num_of_smaller(self) -> int:
        """Number of ops of the graph with fewer ops."""
        return self.num_common + min(len(self.only_in_first), len(self.only_in_second))

    @property
    def are_of_two_models(self) -> bool:
        """Whether hardly any op of the smaller graph is in both placements."""
        return self.num_common < LEAST_SHARE_IN_BOTH * self.num_of_smaller


def placement_diff(
    first: PlacementFile, second: PlacementFile, problem: Problem | None = None
) -> PlacementDiff:
    """Compare two placements op by op.

    problem: interchangeable devices of this problem may be renamed. Without a problem, devices
        whose names are equal up to the colon may be renamed.
    """
    row_of = {key: row for row, key in enumerate(_keys(first))}
    pairs = [(row_of[key], row) for row, key in enumerate(_keys(second)) if key in row_of]
    named = _matched_devices(first, second, pairs, _kind_of(problem))
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
    return PlacementDiff(
        renamed={name: new for name, new in zip(first.devices, named, strict=True) if name != new},
        num_common=len(pairs),
        moved=moved,
        only_in_first=_without(first.graph_ops, second.graph_ops),
        only_in_second=_without(second.graph_ops, first.graph_ops),
        reordered=reordered,
        split=tuple(split_otherwise(first.plan, second.plan)),
    )


def _keys(placed: PlacementFile) -> Iterator[tuple[str, bool]]:
    """Yield the name of each placed op, and whether the plan has added it."""
    if placed.parts is None:
        return ((name, False) for name in placed.names)
    return zip(placed.names, (origin < 0 for origin in placed.parts.origin), strict=True)


def _without(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    known = set(others)
    return tuple(name for name in names if name not in known)


def _matched_devices(
    first: PlacementFile,
    second: PlacementFile,
    pairs: Sequence[tuple[int, int]],
    kind_of: Callable[[str], object],
) -> list[str]:
    """Return the matched device of the second placement for every device of the first, by name.

    Devices of one kind are matched such that most ops stay on their device; among equal
    assignments, such that most devices keep their name.
    """
    from scipy.optimize import linear_sum_assignment

    shared = np.zeros((len(first.devices), len(second.devices)))
    for before, after in pairs:
        shared[first.device[before], second.device[after]] += 1
    is_same = np.array([[a == b for b in second.devices] for a in first.devices])
    is_alike = np.array([[kind_of(a) == kind_of(b) for b in second.devices] for a in first.devices])
    tie = 1 / (1 + len(first.devices))
    worth = np.where(is_alike, shared + tie * is_same, -len(pairs) - 1.0)
    match = {
        first.devices[before]: second.devices[after]
        for before, after in zip(*linear_sum_assignment(worth, maximize=True), strict=True)
        if is_alike[before, after]
    }
    named = [match.get(name, name) for name in first.devices]
    # A device without a match keeps its name, which may be that of another device's match.
    return named if len(set(named)) == len(named) else list(first.devices)


def _kind_of(problem: Problem | None) -> Callable[[str], object]:
    if problem is None:
        return lambda device: device.partition(":")[0]
    names = [device.name for device in problem.machine.devices]
    alike = interchangeable(problem)
    class_of = {names[member]: members[0] for members in alike for member in members}
    return lambda device: class_of.get(device, device)


def _longest_ascent(values: Sequence[int]) -> int:
    """Return the length of the longest increasing subsequence (Schensted, 1961)."""
    tails: list[int] = []
    for value in values:
        place = bisect_left(tails, value)
        tails[place : place + 1] = [value]
    return len(tails)
