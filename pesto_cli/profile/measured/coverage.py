"""How far a measurement is one of the graph at hand."""

from collections.abc import Iterator, Sequence

import numpy as np

from pesto_cli.data.graph import BoolArray
from pesto_cli.data.labels import Role
from pesto_cli.errors import BadInputError
from pesto_cli.profile.analytic import NO_LAUNCH
from pesto_cli.profile.measured.attributed import Attributed
from pesto_cli.profile.source import CostRequest, Coverage

# Below this share of the ops, or of the time, a measurement is taken for one of another graph.
LEAST_MATCHED = 0.5
SHOWN_NAMES = 3


def coverage(found: Attributed, request: CostRequest) -> Coverage:
    """Return what was matched; feeds, fetches and what only hands on data need no measurement."""
    computes = _computes(request)
    unmatched_us = sum(us for _, us in found.unmatched)
    num_steps = max(found.total_us.shape[1], 1)
    matched_us = float(np.nansum(found.total_us)) / num_steps
    return Coverage(
        matched_ops=int(np.count_nonzero(computes & found.has_run)),
        num_ops=int(np.count_nonzero(computes)),
        matched_us=matched_us,
        recorded_us=matched_us + unmatched_us,
    )


def check(covered: Coverage, found: Attributed, what: str) -> None:
    """Refuse a measurement of another graph.

    Raises:
        BadInputError: too few ops of the step were measured, or too much time has no op.
    """
    ops = _share(covered.matched_ops, covered.num_ops)
    time = _share(covered.matched_us, covered.recorded_us)
    if min(ops, time) >= LEAST_MATCHED:
        return
    lacking = (
        f", such as {_listed([name for name, _ in found.unmatched])}" if found.unmatched else ""
    )
    raise BadInputError(
        f"{what} seems to be of another graph: it has {covered.matched_ops} of the "
        f"{covered.num_ops} ops of this one that compute ({ops:.0%}), and {time:.0%} of its time "
        f"is of nodes that this one has (it lacks {len(found.unmatched)}{lacking}); at least "
        f"{LEAST_MATCHED:.0%} of both was expected: record a step of this very graph."
    )


def coverage_notes(covered: Coverage, found: Attributed, request: CostRequest) -> Iterator[str]:
    """Yield what was measured and what was not."""
    text = (
        f"{covered.matched_ops} of {covered.num_ops} ops that compute were measured; of what the "
        f"trace has, {_share(covered.matched_us, covered.recorded_us):.1%} "
        f"({covered.matched_us / 1e3:.3f} of {covered.recorded_us / 1e3:.3f} ms a step) belongs "
        "to ops of this graph"
    )
    if found.unmatched:
        names = [name for name, _ in found.unmatched]
        text += f"; the graph lacks {_counted(len(names), 'node')} of it: {_listed(names)}"
    yield f"{text}."
    never = np.flatnonzero(_computes(request) & ~found.has_run)
    if len(never):
        yield (
            f"{_counted(len(never), 'op')} that compute never ran in the measured steps and are "
            f"taken to take no time: {_listed([request.step.graph.names[op] for op in never])} "
            "(TensorFlow may have made them a part of others, or a branch was not taken)."
        )


def _computes(request: CostRequest) -> BoolArray:
    graph = request.step.graph
    launches = np.array([name not in NO_LAUNCH for name in graph.types], dtype=np.bool_)
    return launches & ~graph.labels.has_role(Role.FEED, Role.FETCH)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:SHOWN_NAMES])
    return f"{shown}, ..." if len(names) > SHOWN_NAMES else shown


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
