"""Baechi's preprocessing: co-placement and fusion (Jeon et al., Section 3.1).

Co-placement: an op with a single consumer is placed on the consumer's device. Before that, the ops
of a colocation group are united. Fusion: two ops with a common device and an edge become one op, if
the first has no other successor or the second no other predecessor. This cannot close a cycle.

Difference: ops that no accelerator can run, such as feeds, are not co-placed with ops that an
accelerator can run. The authors' program has only GPUs, and leaves other devices to TensorFlow's
soft placement.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from itertools import count

import numpy as np

from pesto_cli.data.columns import unique_rows
from pesto_cli.data.graph import BoolArray, IntArray

# Number of edges between checks of the time limit.
EDGES_AT_A_TIME = 1000

Neighbours = dict[int, set[int]]


def united(group: IntArray, group_allowed: BoolArray, pairs: IntArray) -> IntArray:
    """Unite the groups of pairs of ops, if the groups have the same allowed devices.

    Args:
        group: the group of each op, `[num_ops]`.
        group_allowed: `[num_groups, num_devices]`.
        pairs: pairs of ops, `[num_pairs, 2]`.

    Returns:
        The new group of each op, `[num_ops]`. Its number is that of one of the united groups.
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
    """Return the edges along which ops are co-placed, `[..., 2]`.

    Args:
        edges: (before, after), `[num_edges, 2]`.
        is_placed: whether the op is in Baechi's graph, `[num_ops]`.
        is_repeated: whether the op counts as one op for each of its successors, `[num_ops]`.
    """
    seen = edges[is_placed[edges].all(axis=1)]
    successors = np.bincount(seen[:, 0], minlength=len(is_placed))
    chosen: IntArray = seen[((successors == 1) | is_repeated)[seen[:, 0]]]
    return chosen


def fused(
    edges: IntArray,
    group: IntArray,
    is_placed: BoolArray,
    position: IntArray,
    is_over: Callable[[], bool] = lambda: False,
) -> IntArray:
    """Contract edges within groups as long as no cycle can arise.

    A part is a set of ops that are connected by edges within groups. Contractions in one part do
    not change another part, as edges between parts are never contracted. If no op of a part has a
    second successor, or no op has a second predecessor, the part becomes one op whatever the order
    of contractions.

    Args:
        edges: (before, after), ops, `[num_edges, 2]`.
        group: the group of each op, `[num_ops]`; ops of a group share a device.
        is_placed: whether the op is in Baechi's graph, `[num_ops]`.
        position: position of each op in a topological order, `[num_ops]`.
        is_over: returns whether the time is over; then no more edges are contracted.

    Returns:
        The op into which each op is fused, the first by position, or -1 if it is not placed,
        `[num_ops]`.
    """
    seen = unique_rows(edges[is_placed[edges].all(axis=1)])
    is_inner = group[seen[:, 0]] == group[seen[:, 1]]
    tail, head = seen[is_inner].T
    part = _parts(len(group), tail, head)
    num_after, num_before = (np.bincount(ends, minlength=len(group)) for ends in seen.T)
    has_forks, has_joins = (np.zeros(len(group), dtype=np.bool_) for _ in range(2))
    has_forks[part[tail[num_after[tail] > 1]]] = True
    has_joins[part[head[num_before[head] > 1]]] = True
    is_open = (has_forks & has_joins)[part]
    into = np.where(is_open, np.arange(len(group)), part)
    rest = np.column_stack((tail, head))[is_open[tail]]
    order = np.lexsort((position[rest[:, 1]], position[rest[:, 0]]))
    outer = seen[~is_inner]
    _contract_in_turn(rest[order], outer, into, is_over)
    return _representatives(np.where(is_placed, into, -1), position)


def _parts(num_ops: int, tail: IntArray, head: IntArray) -> IntArray:
    """Return one op of the connected part of each op, the same for all its ops, `[num_ops]`."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    joined = coo_matrix((np.ones(len(tail)), (tail, head)), shape=(num_ops, num_ops))
    _, number = connected_components(joined, directed=False)
    first = np.full(num_ops, num_ops, dtype=np.int64)
    np.minimum.at(first, number, np.arange(num_ops))
    part: IntArray = first[number]
    return part


def _contract_in_turn(
    inner: IntArray, outer: IntArray, into: IntArray, is_over: Callable[[], bool]
) -> None:
    """Contract edges in their order, and store in `into` the op that each op is merged into.

    An edge that cannot be contracted is tried again when a contraction changes its tail or head.

    Args:
        inner: edges within groups, `[num_edges, 2]`.
        outer: other edges, which are not contracted, `[num_edges, 2]`.
        into: changed in place, `[num_ops]`.
        is_over: returns whether to stop.
    """
    after: Neighbours = defaultdict(set)
    before: Neighbours = defaultdict(set)
    goes_out, comes_in = set(outer[:, 0].tolist()), set(outer[:, 1].tolist())
    waiting = deque((tail, head) for tail, head in inner.tolist())
    for tail, head in waiting:
        after[tail].add(head)
        before[head].add(tail)
    for number in count(1):
        if not waiting or (number % EDGES_AT_A_TIME == 0 and is_over()):
            break
        tail, head = waiting.popleft()
        is_fork = len(after[tail]) > 1 or tail in goes_out
        is_join = len(before[head]) > 1 or head in comes_in
        if head in after[tail] and not (is_fork and is_join):
            into[head] = tail
            waiting.extend(_contract(tail, head, after, before))
            for beyond in (goes_out, comes_in):
                if head in beyond:
                    beyond.add(tail)


def _contract(tail: int, head: int, after: Neighbours, before: Neighbours) -> list[tuple[int, int]]:
    """Move the edges of head to tail; return the edges that tail did not have before."""
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
    return added


def _representatives(into: IntArray, position: IntArray) -> IntArray:
    """Follow the contractions to their end; return the first op of each op's class, or -1."""
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
