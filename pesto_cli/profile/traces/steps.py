"""Divide the runs of nodes in a trace into steps."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

# At least this share of the nodes runs once in each step; a smaller share with equal numbers of
# runs may be coincidence.
COMMON = 0.2
# A "step" with a smaller share of the nodes of the largest step is incomplete or another function.
WHOLE = 0.5


@dataclass(frozen=True)
class Run:
    """One run of a node. step: the executor's number of the step; None if unknown."""

    node: str
    start_us: float
    us: float
    step: object = None


def steps_by_number(runs: Sequence[Run]) -> list[list[Run]]:
    """Divide the runs into steps by the executor's number; return the steps in order of time."""
    by_number: dict[object, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start_us):
        if run.step is not None:
            by_number[run.step].append(run)
    return _whole(list(by_number.values()))


def steps_from(starts_us: Sequence[float], runs: Sequence[Run]) -> list[list[Run]]:
    """Divide the runs into steps that begin at given times; runs before the first are left out."""
    ordered = sorted(starts_us)
    steps: list[list[Run]] = [[] for _ in ordered]
    for run in runs:
        number = bisect_right(ordered, run.start_us) - 1
        if number >= 0:
            steps[number].append(run)
    return _whole(steps)


def steps_by_repetition(runs: Sequence[Run]) -> list[list[Run]]:
    """Divide the runs into steps if neither numbers nor starts of steps are known.

    A node outside of loops runs once in a step. So the number of steps is the smallest number of
    runs that many nodes (`COMMON`) share. The n-th step begins when the first of these nodes starts
    its n-th run. If no number is shared by many nodes, that of the most nodes counts.
    """
    starts_us: dict[str, list[float]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start_us):
        starts_us[run.node].append(run.start_us)
    if not starts_us:
        return []
    nodes_of = Counter(len(starts) for starts in starts_us.values())
    num_steps = min(
        (count for count, nodes in nodes_of.items() if nodes >= COMMON * len(starts_us)),
        default=nodes_of.most_common(1)[0][0],
    )
    once = [starts for starts in starts_us.values() if len(starts) == num_steps]
    return steps_from([min(starts) for starts in zip(*once, strict=True)], runs)


def _whole(steps: Sequence[list[Run]]) -> list[list[Run]]:
    """Return the steps without incomplete ones, see `WHOLE`."""
    sizes = [len({run.node for run in runs}) for runs in steps]
    return [
        runs for runs, size in zip(steps, sizes, strict=True) if size >= WHOLE * max(sizes) and size
    ]
