"""Nearly lossless contraction: short ops merge with their only successor or predecessor.

There are two rules. Each merges along an edge (u, v) if no other path leads from u to v, and does
not create a second path along any other edge. So any number of merges leaves the graph acyclic:

    v is the only successor of u, and u is short: u then also waits for v's other inputs
    u is the only predecessor of v, and v is short: u's other successors then also wait for v
"""

from typing import Any

import numpy as np

from pesto_cli.coarsen.coarse_problem import coarse_problem
from pesto_cli.coarsen.coarsening import Coarsening
from pesto_cli.coarsen.quotient import Pairs, Quotient, root
from pesto_cli.data.graph import IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.kernels import kernel

# Limit on the work of short neighbours that merge into one node in a round, in units of `short_us`.
# A chain is not limited. Graphs with split ops lose more by merges (docs/search.md).
CAP, CAP_OF_PARTS = 4.0, 1.0
# The graphs of the zoo need at most 51 rounds. In each round, only a few neighbours of an op merge
# with it. So a graph with thousands of short neighbours of one op would need thousands of rounds,
# and on a large graph each takes long. There a round that merges a smaller share is the last one.
MOST_ROUNDS = 100
LARGE, LEAST_MERGED = 20_000, 1e-3


def contract(problem: Problem, short_us: float, cap: float = CAP) -> Coarsening:
    """Merge ops of at most `short_us` with their only neighbour, as long as this is possible.

    cap: see `CAP`.
    """
    quotient = Quotient.of(problem, np.zeros(len(problem.graph.consumers)))
    for _ in range(MOST_ROUNDS):
        before = quotient.num_nodes
        for downwards in (True, False):
            quotient = _merged(quotient, _joined(quotient, short_us, cap, downwards=downwards))
        merged, is_large = before - quotient.num_nodes, before >= LARGE
        if merged <= (LEAST_MERGED * before if is_large else 0):
            break
    return Coarsening(coarse_problem(problem, quotient), quotient.node_of_op)


def _joined(quotient: Quotient, short_us: float, cap: float, *, downwards: bool) -> IntArray:
    """Return the node that each node merges into, `[num_nodes]`; itself if it does not merge.

    downwards: whether nodes merge with their only successor, or with their only predecessor.
    """
    if downwards:
        offsets, neighbours = quotient.out_offsets, quotient.heads
        back_degree = quotient.in_degree
    else:
        offsets, neighbours = quotient.in_offsets, quotient.tails
        back_degree = quotient.out_degree
    leader: IntArray = _leaders(
        offsets,
        neighbours,
        back_degree,
        quotient.work_us,
        quotient.role,
        quotient.group,
        quotient.group_allowed,
        short_us,
        cap * short_us,
    )
    return leader


@kernel
def _leaders(
    offsets: Any,
    neighbours: Any,
    back_degree: Any,
    work: Any,
    role: Any,
    group: Any,
    group_allowed: Any,
    short: float,
    cap: float,
) -> Any:
    """Return for each node the node that contains it after all merges."""
    leader = np.arange(len(work))
    taken = np.zeros(len(work))  # work of the neighbours that merge into each node
    parent = np.arange(len(group_allowed))  # union-find forest of groups
    size = np.bincount(group, minlength=len(group_allowed))  # number of nodes in each group
    for node in range(len(work)):
        if offsets[node + 1] - offsets[node] != 1 or work[node] > short:
            continue
        other = neighbours[offsets[node]]
        chain = back_degree[other] == 1
        one, two = root(parent, group[node]), root(parent, group[other])
        if role[node] != role[other] or not (chain or taken[other] + work[node] <= cap):
            continue
        if (group_allowed[one] != group_allowed[two]).any():
            continue
        if one != two and size[one] > 1 and size[two] > 1:
            continue  # the other nodes of both groups would have to share a device
        if one == two:
            size[two] -= 1
        else:
            size[two] += size[one] - 1
            parent[one] = two
        leader[node] = other
        if not chain:
            taken[other] += work[node]
    for node in range(len(work)):
        leader[node] = root(leader, node)
    return leader


def _merged(quotient: Quotient, leader: IntArray) -> Quotient:
    """Return the quotient in which each node is merged into its leader.

    In each round, two nodes at a time with the same leader are merged, until no two are left.
    """
    while True:
        order = np.argsort(leader, kind="stable")
        place = np.arange(len(leader)) - np.searchsorted(leader[order], leader[order])
        second = np.flatnonzero(place % 2 == 1)
        if len(second) == 0:
            return quotient
        kept, gone = order[second - 1], order[second]  # ascending within a leader's nodes
        quotient = quotient.merged(Pairs(kept, gone, np.zeros(len(kept))))
        leader = np.delete(leader, gone)
