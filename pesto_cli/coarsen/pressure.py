"""The pressure of a merge: how much parallelism it costs."""

from typing import Any

import numpy as np

from pesto_cli.coarsen.paths import Paths, longest_paths
from pesto_cli.coarsen.quotient import Pairs, Quotient
from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.kernels import kernel


def pressure_us(quotient: Quotient, paths: Paths, pairs: Pairs, joint_us: FloatArray) -> FloatArray:
    """Return the pressure of each pair, `[num_pairs]`.

    The pressure in us is the longest path through the merged node if only this pair is merged, or
    the work of the joint group if the work is longer. The merged node of u and v starts when all
    other predecessors of both have ended:

        before = max(before(u), before(v) without u)
        after  = max(after(u) without v, after(v))
        path   = before + work(u) + work(v) + after

    "before(v) without u" counts only the predecessors of v other than u, and "after(u) without v"
    only the successors of u other than v. The groups of u and v become one group on one device, so
    its work is a lower bound on the makespan too.

    joint_us: the result of `joint_work_us`.
    """
    into = _two_longest(quotient.in_offsets, quotient.tails, paths.before + quotient.work_us)
    out = _two_longest(quotient.out_offsets, quotient.heads, paths.after + quotient.work_us)
    u, v = pairs.first, pairs.second
    path = (
        np.maximum(paths.before[u], _without(into, v, u))
        + quotient.work_us[u]
        + quotient.work_us[v]
        + np.maximum(_without(out, u, v), paths.after[v])
    )
    return np.maximum(path, joint_us)


# Found by coarsening Transformer-6-16-2048, with 262 groups of several ops, to 200 nodes.
TIE = 4.0


def joint_work_us(quotient: Quotient, pairs: Pairs) -> FloatArray:
    """Return the work of the merged node, or of the group that two groups become, `[num_pairs]`.

    If both groups have further nodes, the merge puts these on one device too. Then the work counts
    `TIE` times.
    """
    u, v = pairs.first, pairs.second
    one, other = quotient.group[u], quotient.group[v]
    node_us = quotient.work_us[u] + quotient.work_us[v]
    group_us = quotient.group_work_us[one] + quotient.group_work_us[other]
    group_size = np.bincount(quotient.group, minlength=len(quotient.group_work_us))
    ties = (group_size[one] > 1) & (group_size[other] > 1)
    return np.where(one == other, node_us, np.where(ties, TIE * group_us, group_us))


def within(
    quotient: Quotient, batch: Pairs, lengthening_us: FloatArray, limit_us: float
) -> IntArray:
    """Return the rows of a batch that, merged together, make no path longer than `limit_us`.

    Pairs that each keep the limit can exceed it together. While a path is too long, drop half of
    the pairs on such paths, those with the greatest lengthening. Each pair alone keeps the limit.

    lengthening_us: how much longer the path through each merged pair is than the longest path
        through its nodes, `[num_pairs]`.
    """
    rows = np.arange(len(batch))
    while True:
        through = longest_paths(quotient, batch[rows]).through
        too_long = np.flatnonzero(through[batch.first[rows]] > limit_us)
        if len(too_long) <= 1:
            return rows
        by_lengthening = too_long[np.argsort(lengthening_us[rows[too_long]], kind="stable")]
        rows = np.delete(rows, by_lengthening[len(too_long) // 2 :])


def _without(
    longest: tuple[IntArray, FloatArray, FloatArray], node: IntArray, other: IntArray
) -> FloatArray:
    argument, best, second = longest
    result: FloatArray = np.where(argument[node] == other, second[node], best[node])
    return result


@kernel
def _two_longest(offsets: Any, neighbours: Any, length: Any) -> Any:
    """Return each node's neighbour of greatest length, that length, and the second greatest."""
    num_nodes = len(offsets) - 1
    argument = np.full(num_nodes, -1, dtype=np.int64)
    best, second = np.zeros(num_nodes), np.zeros(num_nodes)
    for node in range(num_nodes):
        for edge in range(offsets[node], offsets[node + 1]):
            value = length[neighbours[edge]]
            if argument[node] < 0 or value > best[node]:
                argument[node], best[node], second[node] = neighbours[edge], value, best[node]
            elif value > second[node]:
                second[node] = value
    return argument, best, second
