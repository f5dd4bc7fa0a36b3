"""Sums of the times of recorded nodes over the ops of a step that they belong to."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.profile.affinity import affinity
from pesto_cli.profile.measured.node_names import Match, NodeNames
from pesto_cli.profile.source import CostRequest

HOST_THREAD = ""
"""The place of work on a host thread, if the trace does not name the device that it was for."""


@dataclass(frozen=True, eq=False)
class Attributed:
    """The measured times of the ops of a step, by place.

    us: place -> `[num_ops, num_steps]`, NaN if an op did not run there in a step.
    num_nodes: place -> `[num_ops]`, how many nodes of an op ran there.
    num_nodes_anywhere: `[num_ops]`, how many nodes of an op ran at all.
    unmatched: recorded nodes that are not in the graph, with their mean time in a step in us,
        longest first.
    """

    us: Mapping[str, FloatArray]
    num_nodes: Mapping[str, IntArray]
    num_nodes_anywhere: IntArray
    unmatched: Sequence[tuple[str, float]]

    @cached_property
    def total_us(self) -> FloatArray:
        """`[num_ops, num_steps]`: sum of the times at all places, NaN if an op did not run."""
        total = np.full((len(self.num_nodes_anywhere), 0), np.nan)
        for us in self.us.values():
            total = us if total.size == 0 else _plus(total, us)
        return total

    @cached_property
    def num_runs(self) -> IntArray:
        """`[num_ops]`: number of steps in which an op ran."""
        runs: IntArray = np.count_nonzero(~np.isnan(self.total_us), axis=1)
        return runs

    @cached_property
    def has_run(self) -> BoolArray:
        """`[num_ops]`: whether an op ran in any step."""
        return self.num_nodes_anywhere > 0

    def is_whole(self, place: str) -> BoolArray:
        """`[num_ops]`: whether an op ran and all its measured nodes ran at this place."""
        count = self.num_nodes[place]
        whole: BoolArray = (count > 0) & (count == self.num_nodes_anywhere)
        return whole


def attribute(
    node_us: Mapping[tuple[str, str], FloatArray], num_steps: int, request: CostRequest
) -> Attributed:
    """Sum node times (`Measured.us`) over the ops of the request's step.

    Work at HOST_THREAD counts for the GPU if the op has a GPU kernel, else for the CPU. A node that
    was also measured on a device is skipped there: its host time is that of the kernel launch.
    """
    graph = request.step.graph
    found = _matches(node_us, request)
    is_gpu = affinity(request)["GPU"]
    measured_on_a_device = {name for name, place in node_us if place != HOST_THREAD}
    us: dict[str, FloatArray] = {}
    nodes: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    unmatched: dict[str, float] = defaultdict(float)
    for (name, place), row in node_us.items():
        if np.isnan(row).all():
            continue
        match = found[name]
        if match is None:
            unmatched[name] += float(np.nansum(row)) / num_steps
        elif match.op is not None:
            at = place
            if place == HOST_THREAD:
                if name in measured_on_a_device:
                    continue  # The launch of a kernel whose own time is counted.
                at = "GPU" if is_gpu[match.op] else "CPU"
            table = us.setdefault(at, np.full((graph.num_ops, num_steps), np.nan))
            table[match.op] = _plus(table[match.op], row)
            nodes[at][match.op].add(name)
    everywhere: dict[int, set[str]] = defaultdict(set)
    for by_op in nodes.values():
        for op, names in by_op.items():
            everywhere[op] |= names
    return Attributed(
        us=us,
        num_nodes={place: _counts(by_op, graph.num_ops) for place, by_op in nodes.items()},
        num_nodes_anywhere=_counts(everywhere, graph.num_ops),
        unmatched=sorted(unmatched.items(), key=lambda item: -item[1]),
    )


def _matches(
    node_us: Mapping[tuple[str, str], FloatArray], request: CostRequest
) -> dict[str, Match | None]:
    """Return the op that each recorded node belongs to; None if the graph has no such op.

    The nodes within a called function count only if the calling op itself was not recorded.
    """
    names = NodeNames(request)
    found = {name: names.find(name) for name, _ in node_us}
    whole = {match.op for match in found.values() if match and not match.is_within}
    return {
        name: Match(None) if match and match.is_within and match.op in whole else match
        for name, match in found.items()
    }


def _plus(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the sum, where NaN counts as 0; NaN only if both are NaN."""
    total: FloatArray = np.where(np.isnan(one), other, np.where(np.isnan(other), one, one + other))
    return total


def _counts(names_of: Mapping[int, set[str]], num_ops: int) -> IntArray:
    counts = np.zeros(num_ops, dtype=np.int64)
    for op, names in names_of.items():
        counts[op] = len(names)
    return counts
