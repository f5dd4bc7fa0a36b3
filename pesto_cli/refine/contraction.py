"""Nearly lossless contraction: short ops join the only neighbour that they wait for or serve.

Two rules, each of which merges along an edge (u, v) that no other path from u to v accompanies,
and leaves it so for all other edges, so that any number of merges leaves the graph acyclic:

    v is the only successor of u, and u is short: u's other use of its time is lost, at most short_us
    u is the only predecessor of v, and v is short: what else u feeds waits for v, at most short_us
"""

from typing import Any

import numpy as np
from numba import njit

from pesto_cli.coarsen.coarse_problem import coarse_problem
from pesto_cli.coarsen.coarsening import Coarsening
from pesto_cli.coarsen.quotient import Pairs, Quotient
from pesto_cli.graph import IntArray
from pesto_cli.problem import Problem

# Beside a chain, a node takes in this many times `short_us` of short neighbours at most.
CAP = 4.0


def contract(problem: Problem, short_us: float) -> Coarsening:
    """Let ops of at most `short_us` join their only neighbour, until none is left to join."""
    quotient = Quotient.of(problem, np.zeros(len(problem.graph.consumers)))
    while True:
        before = quotient.num_nodes
        for downwards in (True, False):
            quotient = _merged(quotient, _joined(quotient, short_us, downwards=downwards))
        if quotient.num_nodes == before:
            return Coarsening(coarse_problem(problem, quotient), quotient.node_of_op)


def _joined(quotient: Quotient, short_us: float, *, downwards: bool) -> IntArray:
    """`[num_nodes]`: the node that each one joins, itself if it stays."""
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
        CAP * short_us,
    )
    return leader


@njit(cache=True)
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
    """Each node's only neighbour, where it may join that one; roots of the forest at once."""
    num_nodes = len(work)
    leader = np.arange(num_nodes)
    taken = np.zeros(num_nodes)  # by each neighbour
    joins = np.zeros(num_nodes, np.bool_)
    parent = np.arange(len(group_allowed))  # of groups
    allowed = group_allowed.copy()
    for node in range(num_nodes):
        if offsets[node + 1] - offsets[node] != 1 or work[node] > short:
            continue
        other = neighbours[offsets[node]]
        if role[node] != role[other]:
            continue
        chain = back_degree[other] == 1
        if not chain and taken[other] + work[node] > cap:
            continue
        one, two = group[node], group[other]
        while parent[one] != one:
            one = parent[one]
        while parent[two] != two:
            two = parent[two]
        if one != two:
            if not (allowed[one] == allowed[two]).all():
                continue
            parent[one] = two
        if not chain:
            taken[other] += work[node]
        leader[node] = other
        joins[node] = True
    for node in range(num_nodes):
        while leader[leader[node]] != leader[node]:
            leader[node] = leader[leader[node]]
    return leader


def _merged(quotient: Quotient, leader: IntArray) -> Quotient:
    """The quotient with every node merged into its leader, in rounds of pairs."""
    while True:
        order = np.argsort(leader, kind="stable")
        place = np.arange(len(leader)) - np.searchsorted(leader[order], leader[order])
        second = np.flatnonzero(place % 2 == 1)
        if len(second) == 0:
            return quotient
        one, other = order[second - 1], order[second]
        low, high = np.minimum(one, other), np.maximum(one, other)
        merged = quotient.merged(Pairs(low, high, np.zeros(len(low))))
        label = np.empty(merged.num_nodes, dtype=np.int64)
        kept = np.ones(len(leader), dtype=np.bool_)
        kept[np.maximum(one, other)] = False
        label = leader[kept]
        _, leader = np.unique(label, return_inverse=True)
        quotient = merged
