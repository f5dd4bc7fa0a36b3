"""Merges that heights do not find: any two nodes without a third node on a path between them."""

from typing import Any

import numpy as np

from pesto_cli.coarsen.paths import Paths
from pesto_cli.coarsen.quotient import Pairs, Quotient, root
from pesto_cli.data.graph import IntArray
from pesto_cli.kernels import kernel

MAX_NODES = 8192  # reachability takes num_nodes² bytes


def leftover_pairs(quotient: Quotient, height: IntArray, paths: Paths) -> Pairs:
    """Return a batch of pairs of any heights and equal role that closes no cycle (Theorem 3.2).

    The test is exact, by reachability. The batch is empty only if any two nodes that may share a
    device have a third one between them, or if there are more than `MAX_NODES` nodes. Nodes are
    tried in the order of `paths.before`, so the two nodes of a pair are close in time.
    """
    if quotient.num_nodes > MAX_NODES:
        none = np.zeros(0, dtype=np.int64)
        return Pairs.of_no_weight(none, none)
    order = np.lexsort((height, paths.before))  # topological
    first, second = _unrelated(
        order,
        quotient.out_offsets,
        quotient.heads,
        quotient.role,
        quotient.group,
        quotient.group_allowed,
    )
    return Pairs.of_no_weight(first, second)


@kernel
def _unrelated(
    order: Any, out_offsets: Any, heads: Any, role: Any, group: Any, group_allowed: Any
) -> Any:
    """Match nodes greedily; after each match `reach[u, v]` is updated to the merged graph."""
    num_nodes = len(order)
    reach = np.zeros((num_nodes, num_nodes), dtype=np.bool_)
    for node in order[::-1]:
        for edge in range(out_offsets[node], out_offsets[node + 1]):
            reach[node] |= reach[heads[edge]]
            reach[node, heads[edge]] = True
    parent = np.arange(len(group_allowed))
    allowed = group_allowed.copy()
    taken = np.zeros(num_nodes, dtype=np.bool_)
    first, second = [0 for _ in range(0)], [0 for _ in range(0)]
    for position in range(num_nodes):
        u = order[position]
        if taken[u]:
            continue
        for v in order[position + 1 :]:
            one, other = root(parent, group[u]), root(parent, group[v])
            if taken[v] or role[u] != role[v] or not (allowed[one] & allowed[other]).any():
                continue
            between = reach[v, u]  # possible through an earlier merge of this batch
            for edge in range(out_offsets[u], out_offsets[u + 1]):
                between = between or reach[heads[edge], v]
            if between:
                continue
            taken[u] = taken[v] = True
            first.append(u)
            second.append(v)
            parent[other] = one
            allowed[one] &= allowed[other]
            reach[u] |= reach[v]
            reach[v] |= reach[u]
            for node in range(num_nodes):
                if reach[node, u] or reach[node, v]:
                    reach[node] |= reach[u]
                    reach[node, u] = reach[node, v] = True
            break
    return np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)
