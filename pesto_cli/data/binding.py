"""Colocation groups that keep much of a step on one device, and the op that binds each of them.

    bound work of some ops = their times together - the longest of their elementary ops
    bound bytes of some ops = their variables together - the largest of these

so that neither a long op nor a large variable counts by itself, as no placement splits these. An op
that stands for many (a loop, a conditional, a call) is not elementary.
"""

from dataclasses import dataclass
from typing import Self

import networkx as nx
import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray, OpGraph
from pesto_cli.data.labels import Compound, Role
from pesto_cli.data.problem import Problem

LEAST_SHARE = 0.1
MOST_TRIED = 20
"""Ops of a group that are tried as what binds it, those with most neighbours there first."""
SHOWN = 2


@dataclass(frozen=True)
class Binding:
    """A colocation group that binds more than `LEAST_SHARE` of the work or of the variables.

    name, op_type, compound: of the op without which the rest would bind least. num_ops: of the
        group.
    work, variables: bound shares of the whole step's.
    """

    name: str
    op_type: str
    compound: Compound
    num_ops: int
    work: float
    variables: float

    @property
    def text(self) -> str:
        """All of it, without a full stop."""
        shares = [(self.work, "the work"), (self.variables, "the variables' bytes")]
        bound = " and ".join(f"{share:.0%} of {what}" for share, what in shares if share > 0.005)
        ops = "is one op" if self.num_ops == 1 else f"binds {self.num_ops} ops to one device"
        return f"{self.name!r} ({self.op_type}) {ops}, with {bound}{self._remedy}"

    @property
    def _remedy(self) -> str:
        if self.compound is Compound.LOOP:
            return ": to spread a loop over devices, unroll it"
        if self.compound is Compound.CONDITIONAL and self.variables > 0:
            return ": export the graph again (pesto export), which takes such conditionals apart"
        return ": none of it can be spread over devices"


def binding_note(problem: Problem) -> str | None:
    """Return in a sentence what binds most, and what else binds much; None where nothing does."""
    found = bindings(problem)
    if not found:
        return None
    others = [repr(binding.name) for binding in found[1:]]
    more = f"; so do {', '.join(others[:SHOWN])}" if others else ""
    return f"{found[0].text}{more}{', ...' if len(others) > SHOWN else ''}."


def bindings(problem: Problem) -> list[Binding]:
    """Return the groups that bind much, those with most work first.

    An optimiser's update binds its slots to their variable; such groups are left out. The groups
    of a coarse problem are the merging's own: none is returned.
    """
    graph, weights = problem.graph, _Weights.of(problem)
    if (graph.num_members > 1).any():
        return []
    found = []
    for number in weights.heavy_groups(graph):
        members = graph.groups[number]
        work, variables = weights.bound(members)
        if max(work, variables) > LEAST_SHARE:
            binder = _binder(graph, members, weights)
            if graph.labels.role[binder] != Role.UPDATE:
                kind = Compound(graph.labels.compound[binder])
                name, op_type = graph.names[binder], graph.types[binder]
                found.append(Binding(name, op_type, kind, len(members), work, variables))
    return sorted(found, key=lambda binding: (-binding.work, -binding.variables, binding.name))


@dataclass(frozen=True)
class _Weights:
    """What each op is of the whole step, `[num_ops]`.

    work: share of the op times, each on the kind of device where it is shortest. variables: share
    of the bytes. is_elementary: whether no placement could split the op.
    """

    work: FloatArray
    variables: FloatArray
    is_elementary: BoolArray

    @classmethod
    def of(cls, problem: Problem) -> Self:
        graph = problem.graph
        time_us = np.where(np.isnan(problem.time_us), np.inf, problem.time_us).min(axis=1)
        return cls(
            _shares(np.where(np.isfinite(time_us), time_us, 0.0)),
            _shares(graph.resident_bytes.astype(np.float64)),
            graph.labels.compound == Compound.NONE,
        )

    def heavy_groups(self, graph: OpGraph) -> list[int]:
        """The groups that bind enough, if they bind all that they have."""
        sums = (
            np.bincount(graph.colocation_group, share, minlength=graph.num_groups)
            for share in (self.work, self.variables)
        )
        return np.flatnonzero(np.maximum(*sums) > LEAST_SHARE).tolist()

    def bound(self, ops: IntArray) -> tuple[float, float]:
        """Bound work and bound bytes of some ops, as shares."""
        work, variables = self.work[ops], self.variables[ops]
        longest = work[self.is_elementary[ops]].max(initial=0.0)
        return float(work.sum() - longest), float(variables.sum() - variables.max(initial=0.0))


def _shares(values: FloatArray) -> FloatArray:
    total = values.sum()
    return values / total if total > 0 else values


def _binder(graph: OpGraph, members: IntArray, weights: _Weights) -> int:
    """Return the op of a group without which the most that a part of the rest binds is least."""
    tails, heads = graph.tensor_producer[graph.consumer_tensor], graph.consumers
    inner = np.isin(tails, members) & np.isin(heads, members)
    pairs = np.column_stack((tails[inner], heads[inner]))
    ops, degree = np.unique(pairs, return_counts=True)
    tried = ops[np.argsort(-degree, kind="stable")][:MOST_TRIED]
    longest = members[np.argmax(weights.work[members])]
    candidates: list[int] = [*tried.tolist(), int(longest)]
    return min(
        candidates,
        key=lambda op: max(max(weights.bound(part)) for part in _parts(members, pairs, op)),
    )


def _parts(members: IntArray, pairs: IntArray, left_out: int) -> list[IntArray]:
    """Return what the pairs join of the members, without one of these."""
    joined = nx.Graph(pairs[(pairs != left_out).all(axis=1)].tolist())
    joined.add_nodes_from(members[members != left_out].tolist())
    parts = [np.array(sorted(part)) for part in nx.connected_components(joined)]
    return parts or [np.array([], dtype=np.int64)]
