"""Colocation groups that force much of a step onto one device, and the op that causes each.

    bound work of a set of ops  = sum of their times - longest time of an elementary op of the set
    bound bytes of a set of ops = sum of their variables' bytes - bytes of the largest variable

A single long op or a single large variable is not counted, because no placement can split it. An
op that stands for many (a loop, a conditional, a call) is not elementary.
"""

from dataclasses import dataclass
from typing import Self

import networkx as nx
import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray, OpGraph
from pesto_cli.data.labels import Compound, Role
from pesto_cli.data.problem import Problem
from pesto_cli.printable import first_of

LEAST_SHARE = 0.1
MOST_TRIED = 20
"""How many ops of a group are tried as its binder; ops with most neighbours in it come first."""
SHOWN = 2


@dataclass(frozen=True)
class Binding:
    """A colocation group that binds more than `LEAST_SHARE` of the work or of the variables.

    name, op_type, compound: the binder's. The binder is the op without which the rest of the group
        falls into parts that bind least.
    num_ops: number of ops in the group.
    work: bound work as a share of the step's work.
    variables: bound bytes as a share of the bytes of all variables.
    """

    name: str
    op_type: str
    compound: Compound
    num_ops: int
    work: float
    variables: float

    @property
    def text(self) -> str:
        """The group, its shares and a remedy as one sentence, without a full stop."""
        shares = [(self.work, "the work"), (self.variables, "the variables' bytes")]
        bound = " and ".join(f"{share:.0%} of {what}" for share, what in shares if share > 0.005)
        ops = "is one op" if self.num_ops == 1 else f"binds {self.num_ops} ops to one device"
        return f"{self.name!r} ({self.op_type}) {ops}, with {bound}{self._remedy}"

    @property
    def _remedy(self) -> str:
        if self.compound is Compound.LOOP:
            return ": to spread a loop over devices, unroll it"
        if self.compound is Compound.CONDITIONAL and self.variables > 0:
            return ": export the graph again: pesto export splits conditionals of this form"
        return ": these ops cannot be spread over devices"


def binding_note(problem: Problem) -> str | None:
    """Return a sentence about the binding groups, or None if there is none.

    The sentence describes the group with most bound work and names the binders of a few others.
    """
    found = bindings(problem)
    if not found:
        return None
    others = [repr(binding.name) for binding in found[1:]]
    more = f"; the same holds for {first_of(others, SHOWN)}" if others else ""
    return f"{found[0].text}{more}."


def bindings(problem: Problem) -> list[Binding]:
    """Return the groups above `LEAST_SHARE`, by decreasing bound work.

    Groups whose binder is an optimiser's update (of a variable and its slots) are left out, and so
    is an op whose parts have prices. For a coarse problem the result is empty, because merging made
    its groups.
    """
    graph, weights = problem.graph, _Weights.of(problem)
    if (graph.num_members > 1).any():
        return []
    found = []
    for number in weights.heavy_groups(graph):
        members = graph.groups[number]
        if len(members) == 1 and problem.parts is not None and problem.parts.can_split(members[0]):
            continue
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
    """The share of each op in the whole step, `[num_ops]`.

    work: share of the sum of op times; each op counts with its shortest time over device kinds.
    variables: share of the sum of resident bytes.
    is_elementary: whether the op is no compound op, so that no placement could split it.
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
        """Return the groups whose total share of work or variables exceeds `LEAST_SHARE`."""
        sums = (
            np.bincount(graph.colocation_group, share, minlength=graph.num_groups)
            for share in (self.work, self.variables)
        )
        return np.flatnonzero(np.maximum(*sums) > LEAST_SHARE).tolist()

    def bound(self, ops: IntArray) -> tuple[float, float]:
        """Return the bound work and the bound bytes of some ops, as shares of the step."""
        work, variables = self.work[ops], self.variables[ops]
        longest = work[self.is_elementary[ops]].max(initial=0.0)
        return float(work.sum() - longest), float(variables.sum() - variables.max(initial=0.0))


def _shares(values: FloatArray) -> FloatArray:
    total = values.sum()
    return values / total if total > 0 else values


def _binder(graph: OpGraph, members: IntArray, weights: _Weights) -> int:
    """Return the op whose removal leaves connected parts with the smallest largest bound share."""
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
    """Return the connected components of the members, joined by the pairs, without one op."""
    joined = nx.Graph(pairs[(pairs != left_out).all(axis=1)].tolist())
    joined.add_nodes_from(members[members != left_out].tolist())
    parts = [np.array(sorted(part)) for part in nx.connected_components(joined)]
    return parts or [np.array([], dtype=np.int64)]
