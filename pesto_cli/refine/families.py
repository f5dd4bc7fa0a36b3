"""Families of groups of ops that change device in one move.

Groups of different families may overlap, and need not be nodes of an acyclic graph. Several
families are needed. For example, groups along heavy tensors find a split by layers quickly, but
never put a weight gradient on another device than its forward op. Chains and single ops do.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from pesto_cli.coarsen import coarsen
from pesto_cli.coarsen.scopes import scopes_of_groups
from pesto_cli.data.columns import unique_rows
from pesto_cli.data.graph import BoolArray, FloatArray, IntArray, OpGraph
from pesto_cli.data.labels import Path, Phase
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem
from pesto_cli.kernels import kernel

# Tensors of at least these quantiles of tensor sizes put their producer and consumers in a group.
HEAVY_QUANTILES = (0.5, 0.75, 0.9, 0.97, 0.99)
COARSE_NODES = (300, 100, 40)
SCOPE_DEPTHS = (1, 2, 3, 4)
# Numbers of scopes that the ops of a super-op share.
SUPER_OP_DEPTHS = (1, 2, 3)
# Groups of the same op, or of the same scope of these depths, in this many consecutive layers or
# time steps.
REPEATS = (4, 16, 10**9)
REPEATED_DEPTHS = (3, 5)
NUMBER = re.compile(r"\d{1,18}")
PART = re.compile(r"\.part_\d+")
# Weight of the family of single units; all other families have weight 1.
ALONE_WEIGHT = 3.0


@dataclass(frozen=True, eq=False)
class Families:
    """Families of groups of units; a unit is a colocation group with more than one allowed device.

    units: the colocation group of each unit, `[num_units]`.
    cumulative: cumulative probabilities of the families, `[num_families]`.
    family_offsets: the rows of groups of each family, `[num_families + 1]`.
    group_offsets: the rows of `members` of each group, `[num_groups + 1]`.
    members: colocation groups.
    """

    units: IntArray
    cumulative: FloatArray
    family_offsets: IntArray
    group_offsets: IntArray
    members: IntArray


@cached_per_problem
def families_of_ops(problem: Problem) -> Families:
    """Return the families of a problem, in which each group occurs once.

    The families are single units, chains, groups along heavy tensors, name scopes, the parts of
    equal index in a scope, and repetitions.
    """
    return _families(problem, _labels(problem))


@cached_per_problem
def families_of_nodes(problem: Problem) -> Families:
    """Return the families of a contracted problem.

    They are those of ops, super-ops, and nodes of coarser problems.
    """
    labels = (_labels(problem), _super_op_labels(problem), _coarse_labels(problem))
    return _families(problem, chain(*labels))


@cached_per_problem
def families_of_super_ops(problem: Problem) -> Families:
    """Return the families of super-ops alone, at most one for each of `SUPER_OP_DEPTHS`."""
    return _families(problem, _super_op_labels(problem), with_single_units=False)


def _families(
    problem: Problem, labels: Iterable[IntArray], *, with_single_units: bool = True
) -> Families:
    """Return a family for each array of labels, after that of single units if it is wanted.

    Each group occurs once.
    """
    movable = problem.has_choice
    units = np.flatnonzero(movable)
    single = [unit.reshape(1) for unit in units]
    families, weights = ([single], [ALONE_WEIGHT]) if with_single_units else ([], [])
    seen = {members.tobytes() for group in families for members in group}
    for label in labels:
        groups = []
        for members in _groups(problem.graph.colocation_group, label, movable):
            if len(members) and members.tobytes() not in seen:
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
    """Yield the labels of ops for each family, `[num_ops]`; ops with equal labels form a group."""
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
    parts = [PART.findall(name)[-1:] for name in graph.names]
    if any(parts):
        for depth in (0, *SCOPE_DEPTHS):
            yield _same(
                "/".join((*path[:depth], *part))
                for path, part in zip(beside_forward_op, parts, strict=True)
            )
    for repeats in REPEATS:
        names = [_every(repeats, name) for name in graph.names]
        yield _same(names)
        for depth in REPEATED_DEPTHS:
            yield _same("/".join(name.split("/")[:depth]) for name in names)


def _super_op_labels(problem: Problem) -> Iterator[IntArray]:
    for depth in SUPER_OP_DEPTHS:
        yield scopes_of_groups(problem, depth)[problem.graph.colocation_group]


def _coarse_labels(problem: Problem) -> Iterator[IntArray]:
    for num_nodes in COARSE_NODES:
        if num_nodes < problem.num_ops:
            yield coarsen(problem, num_nodes).node_of_op


def _same(labels: Iterable[str]) -> IntArray:
    each = list(labels)
    index_of = {label: index for index, label in enumerate(sorted(set(each)))}
    return np.array([index_of[label] for label in each], dtype=np.int64)


def _every(repeats: int, name: str) -> str:
    """Divide the numbers in a name by `repeats`, so that consecutive layers share the result."""
    return NUMBER.sub(lambda number: str(int(number[0]) // repeats), name)


def _beside_forward_ops(graph: OpGraph, in_names: Sequence[Path]) -> list[Path]:
    """Return the path of each op, `[num_ops]`; paths of gradients begin with their forward op."""
    paths, in_model = list(in_names), graph.labels.paths(graph.names)
    for op in np.flatnonzero(graph.labels.phase == Phase.BACKWARD).tolist():
        forward = graph.labels.forward_op[op]
        begin = () if forward is None else tuple(forward.split("/"))
        paths[op] = (*begin, *in_model[op][len(begin) :])
    return paths


def _groups(unit_of_op: IntArray, label: IntArray, movable: BoolArray) -> list[IntArray]:
    """Return the movable units of each label, in ascending order."""
    rows = unique_rows(np.column_stack((label, unit_of_op)))
    labels, units = rows[movable[rows[:, 1]]].T
    ends = [*(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(units)]
    return [units[first:end].copy() for first, end in pairwise([0, *ends])]


def _offsets(sizes: list[int]) -> IntArray:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


@kernel
def _components(num_ops, tails, heads):  # type: ignore[no-untyped-def]
    """Return the lowest op of the connected component of each op, `[num_ops]`."""
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
