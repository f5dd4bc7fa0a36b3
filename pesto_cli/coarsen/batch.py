"""Pairs of nodes that can be merged in one batch without closing a cycle (Theorem 3.5)."""

from enum import IntFlag
from typing import Any

import numpy as np

from pesto_cli.coarsen.quotient import Pairs, Quotient, root
from pesto_cli.coarsen.rounds import MergeVerdict
from pesto_cli.data.graph import IntArray
from pesto_cli.kernels import kernel


class NoCycle(IntFlag):
    """Reasons why merging u and v alone closes no cycle. One reason is enough."""

    ONLY_SUCCESSOR = 1
    ONLY_PREDECESSOR = 2
    NEXT_HEIGHT = 4
    OTHERS_ABOVE = 8
    SAME_HEIGHT = 16


def condition_ii(quotient: Quotient, height: IntArray, edges: Pairs) -> IntArray:
    """Return the `NoCycle` flags for which each edge (u, v) meets condition (ii) of Theorem 3.5.

    The result is `[num_pairs]`; 0 means that an edge does not meet the condition, which is

    |succ(u)| = 1  or  |prec(v)| = 1  or  H(v) = H(u) + 1
    or  H(w) > H(v) for every other successor w of u
    """
    u, v = edges.first, edges.second
    other = _second_lowest(quotient.out_offsets, quotient.heads, height)  # inf where |succ| = 1
    is_only = quotient.out_degree[u] == 1
    flags: IntArray = (
        NoCycle.ONLY_SUCCESSOR * is_only
        | NoCycle.ONLY_PREDECESSOR * (quotient.in_degree[v] == 1)
        | NoCycle.NEXT_HEIGHT * (height[v] == height[u] + 1)
        | NoCycle.OTHERS_ABOVE * (~is_only & (height[v] < other[u]))
    )
    return flags


def mergeable_edges(quotient: Quotient, height: IntArray) -> Pairs:
    """Return the edges (u, v) that meet condition (ii) and whose nodes can share a device."""
    edges = Pairs(*quotient.edges, quotient.weight_bytes)
    return _compatible(quotient, edges[condition_ii(quotient, height, edges) != 0])


def siblings(quotient: Quotient, height: IntArray) -> Pairs:
    """Return pairs of nodes of the same height that can share a device.

    Two nodes of the same height never close a cycle, also in a batch with pairs along edges.
    Candidates come from sorted rows of nodes: the successors of each node, the predecessors of each
    node, and all nodes. Two nodes that are next to each other in a row become a pair.
    """
    tails, heads = quotient.edges
    # One number for a set of devices. Beyond 53 devices, different sets may have the same number.
    devices = (quotient.group_allowed @ 0.5 ** np.arange(quotient.group_allowed.shape[1]))[
        quotient.group
    ]
    alike = np.lexsort((quotient.role, devices, height))
    place = np.empty_like(alike)
    place[alike] = np.arange(len(alike))
    by_tail = np.argsort(tails * quotient.num_nodes + place[heads])
    by_head = np.argsort(heads * quotient.num_nodes + place[tails])
    pairs = []
    for shared, nodes in (
        (tails[by_tail], heads[by_tail]),
        (heads[by_head], tails[by_head]),
        (np.zeros(len(alike)), alike),
    ):
        first, second = nodes[:-1], nodes[1:]
        fits = (shared[:-1] == shared[1:]) & (height[first] == height[second])
        low, high = np.minimum(first, second)[fits], np.maximum(first, second)[fits]
        pairs.append(low * quotient.num_nodes + high)
    every = np.sort(np.concatenate(pairs))  # several times faster than `np.unique`
    different = every[np.diff(every, prepend=-1) > 0]
    first, second = np.divmod(different, quotient.num_nodes)
    return _compatible(quotient, Pairs.of_no_weight(first, second))


def _compatible(quotient: Quotient, pairs: Pairs) -> Pairs:
    """Return the pairs of the same role whose colocation groups have a common device."""
    allowed = quotient.group_allowed
    one, other = quotient.group[pairs.first], quotient.group[pairs.second]
    same_role = quotient.role[pairs.first] == quotient.role[pairs.second]
    return pairs[same_role & (allowed[one] & allowed[other]).any(axis=1)]


def verdicts(
    quotient: Quotient, height: IntArray, pairs: Pairs, cap_us: float = np.inf
) -> IntArray:
    """Return the `MergeVerdict` of each pair, `[num_pairs]`.

    Pairs are merged greedily in the given order, the most preferred first. The batch meets
    conditions (i) and (iii) of Theorem 3.5: no node is in two pairs, and once (u, v) is merged, no
    other predecessor of v at the height of u is the first node of a pair along an edge. Groups that
    the batch joins have a common device and at most `cap_us` of work.
    """
    verdict: IntArray = _matching(
        pairs.first,
        pairs.second,
        height,
        quotient.in_offsets,
        quotient.tails,
        quotient.group,
        quotient.group_work_us,
        quotient.group_allowed,
        cap_us,
    )
    return verdict


@kernel
def _second_lowest(out_offsets: Any, heads: Any, height: Any) -> Any:
    """Return the second lowest height among each node's successors, `[num_nodes]`, or inf."""
    num_nodes = len(height)
    second = np.full(num_nodes, np.inf)
    for node in range(num_nodes):
        lowest = np.inf
        for edge in range(out_offsets[node], out_offsets[node + 1]):
            level = height[heads[edge]]
            if level < lowest:
                lowest, level = level, lowest
            second[node] = min(second[node], level)
    return second


@kernel
def _matching(
    first: Any,
    second: Any,
    height: Any,
    in_offsets: Any,
    tails: Any,
    group: Any,
    group_work: Any,
    group_allowed: Any,
    cap: float,
) -> Any:
    taken = np.zeros(len(height), dtype=np.bool_)
    barred = np.zeros(len(height), dtype=np.bool_)  # may not be the u of an edge (u, v)
    parent = np.arange(len(group_work))
    work = group_work.copy()
    allowed = group_allowed.copy()
    verdict = np.empty(len(first), dtype=np.int64)
    for pair in range(len(first)):
        u, v = first[pair], second[pair]
        along_edge = height[u] != height[v]
        if taken[u] or taken[v]:
            verdict[pair] = MergeVerdict.TAKEN
            continue
        if along_edge and barred[u]:
            verdict[pair] = MergeVerdict.BARRED
            continue
        one, other = root(parent, group[u]), root(parent, group[v])
        if one != other:
            if not (allowed[one] & allowed[other]).any():
                verdict[pair] = MergeVerdict.NO_DEVICE
                continue
            if work[one] + work[other] > cap:
                verdict[pair] = MergeVerdict.CAPPED
                continue
            parent[other] = one
            work[one] += work[other]
            allowed[one] &= allowed[other]
        verdict[pair] = MergeVerdict.MERGED
        taken[u] = taken[v] = True
        if along_edge:
            for edge in range(in_offsets[v], in_offsets[v + 1]):
                if height[tails[edge]] == height[u]:
                    barred[tails[edge]] = True
    return verdict
