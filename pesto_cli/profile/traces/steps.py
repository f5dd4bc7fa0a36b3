"""Which runs of nodes belong to which step of a trace."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

# A share of the nodes that is no accident: so many run as often as there are steps.
COMMON = 0.2
# What has fewer nodes than this share of the largest step is another function, or a step cut off.
WHOLE = 0.5


@dataclass(frozen=True)
class Run:
    """One run of a node. step: an executor's number of the step, where it is known."""

    node: str
    start_us: float
    us: float
    step: object = None


def steps_by_number(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs of each step by the executor's number, in order of time."""
    by_number: dict[object, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start_us):
        if run.step is not None:
            by_number[run.step].append(run)
    return _whole(list(by_number.values()))


def steps_from(starts_us: Sequence[float], runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs from each start to the next; what ran before the first is left out."""
    ordered = sorted(starts_us)
    steps: list[list[Run]] = [[] for _ in ordered]
    for run in runs:
        number = bisect_right(ordered, run.start_us) - 1
        if number >= 0:
            steps[number].append(run)
    return _whole(steps)


def steps_by_repetition(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs of each step where nothing but the runs tells them.

    A node outside of loops runs once a step: the least number of runs that many nodes have in
    common is that of the steps, and the n-th step begins with the n-th run of any of these nodes.
    """
    starts_us: dict[str, list[float]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start_us):
        starts_us[run.node].append(run.start_us)
    if not starts_us:
        return []
    nodes_of = Counter(len(starts) for starts in starts_us.values())
    num_steps = min(count for count, nodes in nodes_of.items() if nodes >= COMMON * len(starts_us))
    once = [starts for starts in starts_us.values() if len(starts) == num_steps]
    return steps_from([min(starts) for starts in zip(*once, strict=True)], runs)


def _whole(steps: Sequence[list[Run]]) -> list[list[Run]]:
    """Return the steps that are no fragments."""
    sizes = [len({run.node for run in runs}) for runs in steps]
    return [
        runs for runs, size in zip(steps, sizes, strict=True) if size >= WHOLE * max(sizes) and size
    ]
