"""Heights and longest paths of a quotient graph, optionally with pairs of nodes merged."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.coarsen.quotient import Pairs, Quotient
from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.kernels import kernel


def heights(quotient: Quotient) -> IntArray:
    """Return the height of each node, `[num_nodes]`; roots have height 1 (Definition 3.4)."""
    ones = np.ones(quotient.num_nodes)
    before, _ = _longest(*_rows(quotient), ones, np.full(quotient.num_nodes, -1))
    height: IntArray = before.astype(np.int64) + 1
    return height


@dataclass(frozen=True, eq=False)
class Paths:
    """Longest paths in microseconds of work, without transfers, `[num_nodes]` each.

    before: up to the start of the node.
    after: from the end of the node.
    through: the sum of both and the work of the node.
    """

    before: FloatArray
    after: FloatArray
    through: FloatArray


def longest_paths(quotient: Quotient, pairs: Pairs | None = None) -> Paths:
    """Return the longest paths of a quotient in which the given pairs are merged.

    The pairs must close no cycle.
    """
    mate = np.full(quotient.num_nodes, -1) if pairs is None else pairs.mates(quotient.num_nodes)
    work = quotient.work_us + np.where(mate >= 0, quotient.work_us[mate], 0.0)
    before, after = _longest(*_rows(quotient), work, mate)
    return Paths(before, after, before + work + after)


def _rows(quotient: Quotient) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    return quotient.out_offsets, quotient.heads, quotient.in_offsets, quotient.tails


@kernel
def _longest(
    out_offsets: Any, heads: Any, in_offsets: Any, tails: Any, work: Any, mate: Any
) -> Any:
    """Return the lengths of the longest paths before and after each node, `[num_nodes]` each.

    The work of the node itself is not included. The two nodes of a pair are treated as one node:
    both have the length of the pair, and `work[i]` of either is the work of the pair. Nodes are
    visited in the order of Kahn's algorithm, and in reverse order for the paths after them.
    """
    num_nodes = len(work)
    leader = np.arange(num_nodes)
    for node in range(num_nodes):
        if mate[node] >= 0:
            leader[node] = min(node, mate[node])
    waiting = np.zeros(num_nodes, dtype=np.int64)
    for node in range(num_nodes):
        for edge in range(in_offsets[node], in_offsets[node + 1]):
            if leader[tails[edge]] != leader[node]:
                waiting[leader[node]] += 1
    order = np.empty(num_nodes, dtype=np.int64)
    count = 0
    for node in range(num_nodes):
        if leader[node] == node and waiting[node] == 0:
            order[count] = node
            count += 1
    before = np.zeros(num_nodes)
    done = 0
    while done < count:
        node = order[done]
        done += 1
        end = before[node] + work[node]
        member = node
        while member >= 0:
            for edge in range(out_offsets[member], out_offsets[member + 1]):
                head = leader[heads[edge]]
                if head != node:
                    before[head] = max(before[head], end)
                    waiting[head] -= 1
                    if waiting[head] == 0:
                        order[count] = head
                        count += 1
            member = mate[member] if member == node else -1
    after = np.zeros(num_nodes)
    for position in range(count - 1, -1, -1):
        node = order[position]
        end = after[node] + work[node]
        member = node
        while member >= 0:
            for edge in range(in_offsets[member], in_offsets[member + 1]):
                tail = leader[tails[edge]]
                if tail != node:
                    after[tail] = max(after[tail], end)
            member = mate[member] if member == node else -1
    return before[leader], after[leader]
