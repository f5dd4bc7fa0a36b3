"""Coverage: how well a measurement matches the graph that is profiled."""

from collections.abc import Iterator, Sequence

import numpy as np

from pesto_cli.data.graph import BoolArray
from pesto_cli.data.labels import Role
from pesto_cli.errors import BadInputError
from pesto_cli.printable import first_of
from pesto_cli.profile.analytic.kinds import NO_LAUNCH
from pesto_cli.profile.measured.attributed import Attributed
from pesto_cli.profile.source import CostRequest, Coverage

# A measurement with a smaller share of matched ops, or of matched time, is refused.
LEAST_MATCHED = 0.5
SHOWN_NAMES = 3


def coverage(found: Attributed, request: CostRequest) -> Coverage:
    """Return the coverage; feeds, fetches and ops that only pass on data do not count."""
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
        BadInputError: too few ops of the step were measured, or too much of the measured time
            belongs to no op of the step.
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
        f"{covered.num_ops} ops that compute in this graph ({ops:.0%}), and {time:.0%} of its time "
        f"belongs to nodes of this graph ({len(found.unmatched)} of its nodes do not{lacking}); at "
        f"least {LEAST_MATCHED:.0%} of both was expected: record a step of exactly this graph."
    )


def coverage_notes(covered: Coverage, found: Attributed, request: CostRequest) -> Iterator[str]:
    """Yield notes on the measured ops, and on ops that compute but never ran."""
    text = (
        f"{covered.matched_ops} of {covered.num_ops} ops that compute were measured; "
        f"{_share(covered.matched_us, covered.recorded_us):.1%} of the trace's time "
        f"({covered.matched_us / 1e3:.3f} of {covered.recorded_us / 1e3:.3f} ms a step) belongs "
        "to ops of this graph"
    )
    if found.unmatched:
        names = [name for name, _ in found.unmatched]
        text += f"; {_counted(len(names), 'node')} of the trace not in the graph: {_listed(names)}"
    yield f"{text}."
    never = np.flatnonzero(_computes(request) & ~found.has_run)
    if len(never):
        yield (
            f"{len(never)} of the ops that compute never ran in the measured steps and count as "
            f"0 us: {_listed([request.step.graph.names[op] for op in never])} "
            "(TensorFlow may have fused them into others, or a branch was not taken)."
        )


def _computes(request: CostRequest) -> BoolArray:
    graph = request.step.graph
    launches = np.array([name not in NO_LAUNCH for name in graph.types], dtype=np.bool_)
    return launches & ~graph.labels.has_role(Role.FEED, Role.FETCH)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _listed(names: Sequence[str]) -> str:
    return first_of([repr(str(name)) for name in names], SHOWN_NAMES)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
