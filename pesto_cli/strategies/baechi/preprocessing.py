"""Baechi's preprocessing: what is placed together, and what as one op (Jeon et al., Section 3.1).

Co-placement: an op whose output goes to a single op shares that one's device; so do, before all,
the ops of a colocation group. Fusion: of the ops that share a device, a pair joined by an edge
becomes one op, if the first has no other successor or the second no other predecessor, so that no
cycle can arise.

Departure: ops that no accelerator can run, feeds above all, are not placed together with ops that
one can. The program knows GPUs alone and leaves the rest to TensorFlow's soft placement.
"""

from collections import defaultdict, deque

import numpy as np

from pesto_cli.data.graph import BoolArray, IntArray

Neighbours = list[set[int]]


def united(group: IntArray, group_allowed: BoolArray, pairs: IntArray) -> IntArray:
    """Unite the groups of pairs of ops; groups that may go to different devices stay apart.

    Args:
        group: `[num_ops]`.
        group_allowed: `[num_groups, num_devices]`.
        pairs: `[num_pairs, 2]`, of ops.

    Returns:
        `[num_ops]`: the name of each united group is that of one of its members.
    """
    root = list(range(len(group_allowed)))
    _, kind = np.unique(group_allowed, axis=0, return_inverse=True)
    kind = kind.reshape(-1)

    def find(member: int) -> int:
        while root[member] != member:
            root[member] = member = root[root[member]]
        return member

    for one, other in group[pairs].tolist():
        first, second = find(one), find(other)
        if first != second and kind[first] == kind[second]:
            root[second] = first
    return np.array([find(int(member)) for member in group], dtype=np.int64)


def with_one_consumer(edges: IntArray, is_placed: BoolArray, is_repeated: BoolArray) -> IntArray:
    """The edges, `[..., 2]`, along which ops are co-placed.

    Args:
        edges: `[num_edges, 2]`, (before, after).
        is_placed: `[num_ops]`, whether Baechi sees the op at all.
        is_repeated: `[num_ops]`, stands for as many ops as it has successors.
    """
    seen = edges[is_placed[edges].all(axis=1)]
    successors = np.bincount(seen[:, 0], minlength=len(is_placed))
    chosen: IntArray = seen[((successors == 1) | is_repeated)[seen[:, 0]]]
    return chosen


def fused(edges: IntArray, group: IntArray, is_placed: BoolArray, position: IntArray) -> IntArray:
    """Contract edges within groups as long as no cycle can arise.

    Args:
        edges: `[num_edges, 2]`, (before, after), between ops.
        group: `[num_ops]`, what shares a device.
        is_placed: `[num_ops]`, whether Baechi sees the op at all.
        position: `[num_ops]`, in a topological order.

    Returns:
        `[num_ops]`: the op that each is fused into, the first by position; -1 where not placed.
    """
    after: Neighbours = [set() for _ in range(len(group))]
    before: Neighbours = [set() for _ in range(len(group))]
    inner: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
    order = np.lexsort((position[edges[:, 1]], position[edges[:, 0]]))
    for tail, head in edges[order].tolist():
        if is_placed[tail] and is_placed[head]:
            after[tail].add(head)
            before[head].add(tail)
            if group[tail] == group[head]:
                inner[int(group[tail])].append((tail, head))
    into = np.where(is_placed, np.arange(len(group)), -1)
    for candidates in inner.values():
        while candidates:
            tail, head = candidates.popleft()
            if head in after[tail] and not (len(after[tail]) > 1 and len(before[head]) > 1):
                into[head] = tail
                candidates.extend(_contract(tail, head, after, before, group))
    return _representatives(into, position)


def _contract(
    tail: int, head: int, after: Neighbours, before: Neighbours, group: IntArray
) -> list[tuple[int, int]]:
    """Give the edges of head to tail; those within the group that tail did not have before."""
    added = []
    before[head].discard(tail)
    after[tail].discard(head)
    for source in sorted(before[head]):
        after[source].discard(head)
        if tail not in after[source]:
            after[source].add(tail)
            before[tail].add(source)
            added.append((source, tail))
    for target in sorted(after[head]):
        before[target].discard(head)
        if target not in after[tail]:
            after[tail].add(target)
            before[target].add(tail)
            added.append((tail, target))
    before[head], after[head] = set(), set()
    return [(source, target) for source, target in added if group[source] == group[target]]


def _representatives(into: IntArray, position: IntArray) -> IntArray:
    """Follow the contractions to their end, and name each class by its first op."""
    final = into.copy()
    while True:
        further = np.where(final >= 0, final[final], -1)
        if (further == final).all():
            break
        final = further
    placed = np.flatnonzero(final >= 0)
    first = np.full(len(into), len(into), dtype=np.int64)
    np.minimum.at(first, final[placed], position[placed])
    op_at = np.argsort(position)
    final[placed] = op_at[first[final[placed]]]
    return final
