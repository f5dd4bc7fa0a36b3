"""Families of groups that move together: no single family or size is enough.

Groups of a family may overlap those of another, and need not be nodes of an acyclic graph: they
only say what changes device in one move. Heavy-tensor groups find a split by layers at once but
never part a weight gradient from its forward op; chains and single ops do that.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from pesto_cli.coarsen import coarsen
from pesto_cli.data.graph import BoolArray, FloatArray, IntArray, OpGraph
from pesto_cli.data.labels import Path, Phase
from pesto_cli.data.problem import Problem
from pesto_cli.kernels import kernel

# Tensors as heavy as this share of them, and heavier, hold their producer and consumers together.
HEAVY_QUANTILES = (0.5, 0.75, 0.9, 0.97, 0.99)
COARSE_NODES = (300, 100, 40)
SCOPE_DEPTHS = (1, 2, 3, 4)
# The same op, or scope of these depths, of so many layers or time steps in a row.
REPEATS = (4, 16, 10**9)
REPEATED_DEPTHS = (3, 5)
NUMBER = re.compile(r"\d+")
# Ops that move alone are tried more often than any other family.
ALONE_WEIGHT = 3.0


@dataclass(frozen=True, eq=False)
class Families:
    """Groups of units; a unit is a colocation group that has more than one device to go to.

    units: `[num_units]`, their numbers among the problem's colocation groups.
    cumulative: `[num_families]`, the chance of drawing one of the families up to here.
    family_offsets: `[num_families + 1]`, rows of groups.
    group_offsets: `[num_groups + 1]`, rows of `members`, which are colocation groups.
    """

    units: IntArray
    cumulative: FloatArray
    family_offsets: IntArray
    group_offsets: IntArray
    members: IntArray


def families_of(problem: Problem, *, coarse: bool) -> Families:
    """Single units, chains, heavy tensors, name scopes and maybe coarse nodes; repeats dropped."""
    movable = problem.group_allowed.sum(axis=1) > 1
    units = np.flatnonzero(movable)
    seen: set[bytes] = set()
    families, weights = [[unit.reshape(1) for unit in units]], [ALONE_WEIGHT]
    for label in chain(_labels(problem), _coarse_labels(problem) if coarse else ()):
        groups = []
        for members in _groups(problem.graph.colocation_group, label, movable):
            if len(members) > 1 and members.tobytes() not in seen:
                seen.add(members.tobytes())
                groups.append(members)
        if groups:
            families.append(groups)
            weights.append(1.0)
    flat = [members for groups in families for members in groups]
    return Families(
        units=units,
        cumulative=np.cumsum(weights) / np.sum(weights),
        family_offsets=_offsets([len(groups) for groups in families]),
        group_offsets=_offsets([len(members) for members in flat]),
        members=np.concatenate([*flat, np.zeros(0, dtype=np.int64)]),
    )


def _labels(problem: Problem) -> Iterator[IntArray]:
    """For each family, `[num_ops]`: ops with the same label form a group."""
    graph = problem.graph
    tails, heads = graph.edges.T
    only = graph.successors.degree[tails] == 1
    alone = only & (graph.predecessors.degree[heads] == 1)
    for edge in (alone, only):
        yield _components(graph.num_ops, tails[edge], heads[edge])
    num_bytes = np.where(graph.consumer_on_host, -1, graph.tensor_bytes[graph.consumer_tensor])
    producer = graph.tensor_producer[graph.consumer_tensor]
    some = graph.tensor_bytes[graph.tensor_bytes > 0]
    for heavy in np.quantile(some, HEAVY_QUANTILES) if len(some) else ():
        edge = num_bytes >= heavy
        yield _components(graph.num_ops, producer[edge], graph.consumers[edge])
    in_names = [tuple(name.split("/")) for name in graph.names]
    beside_forward_op = _beside_forward_ops(graph, in_names)
    for depth in SCOPE_DEPTHS:
        for paths in (in_names, beside_forward_op):
            yield _same("/".join(path[:depth]) for path in paths)
    for repeats in REPEATS:
        names = [_every(repeats, name) for name in graph.names]
        yield _same(names)
        for depth in REPEATED_DEPTHS:
            yield _same("/".join(name.split("/")[:depth]) for name in names)


def _coarse_labels(problem: Problem) -> Iterator[IntArray]:
    for num_nodes in COARSE_NODES:
        if num_nodes < problem.num_ops:
            yield coarsen(problem, num_nodes).node_of_op


def _same(labels: Iterable[str]) -> IntArray:
    return np.unique(list(labels), return_inverse=True)[1]


def _every(repeats: int, name: str) -> str:
    """A name that so many layers or time steps in a row share: their numbers over `repeats`."""
    return NUMBER.sub(lambda number: str(int(number[0]) // repeats), name)


def _beside_forward_ops(graph: OpGraph, in_names: Sequence[Path]) -> list[Path]:
    """`[num_ops]`: the paths in their names, but those of gradients begin with their forward op."""
    paths, in_model = list(in_names), graph.labels.paths(graph.names)
    for op in np.flatnonzero(graph.labels.phase == Phase.BACKWARD).tolist():
        forward = graph.labels.forward_op[op]
        begin = () if forward is None else tuple(forward.split("/"))
        paths[op] = (*begin, *in_model[op][len(begin) :])
    return paths


def _groups(unit_of_op: IntArray, label: IntArray, movable: BoolArray) -> list[IntArray]:
    """The movable units under each label, ascending."""
    rows = np.unique(np.column_stack((label, unit_of_op)), axis=0)
    rows = rows[movable[rows[:, 1]]]
    return np.split(rows[:, 1].copy(), np.flatnonzero(np.diff(rows[:, 0])) + 1)


def _offsets(sizes: list[int]) -> IntArray:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


@kernel
def _components(num_ops, tails, heads):  # type: ignore[no-untyped-def]
    """`[num_ops]`: the lowest op that edges lead to, in either direction."""
    parent = np.arange(num_ops)
    for edge in range(len(tails)):
        one, other = tails[edge], heads[edge]
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        while parent[other] != other:
            parent[other] = parent[parent[other]]
            other = parent[other]
        parent[max(one, other)] = min(one, other)
    for op in range(num_ops):  # a parent is never above its child
        parent[op] = parent[parent[op]]
    return parent
