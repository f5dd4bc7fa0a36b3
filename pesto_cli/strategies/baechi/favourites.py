"""The linear program of SCT, and the favourite children that its solution names.

Hanen and Munier (1995), as Baechi takes it (Jeon et al., Section 3.3; `placer/m_sct.py`). With p_i
the time of op i, c_ij that of what i sends to j, S_i the start, and x_ij = 0 if j is the favourite
child of i, which then follows on its device without a transfer:

    min  w
    (1)  S_i + p_i + c_ij x_ij <= S_j      for every edge (i, j)
    (2)  sum_j x_ij >= out-degree(i) - 1   i has at most one favourite child
    (3)  sum_i x_ij >= in-degree(j) - 1    j is the favourite of at most one
    (4)  S_i + p_i <= w
         S >= 0,  0 <= x <= 1

There is no limit to the number of devices. Edges with x below the threshold make a child the
favourite; where rounding gives an op several, the last wins, and a child leaves the parent it had.

Where devices or links differ, p is the least time of an op and c that on the cheapest link.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.strategies.baechi.columns import NONE
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.settings import Settings
from pesto_cli.strategies.devices import accelerators


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A solution: `x` is `[num_edges]`, `makespan_us` is w."""

    x: FloatArray
    makespan_us: float


def favourite_children(problem: Problem, graph: PlacementGraph, settings: Settings) -> IntArray:
    """`[num_nodes]`: the favourite child of each node, or `NONE`."""
    time_us = graph.duration_us.min(axis=1)
    transfer_us = edge_transfer_us(problem, graph, settings)
    solution = solve_relaxation(graph.edges, time_us, transfer_us)
    return rounded(graph.num_nodes, graph.edges, solution.x, settings.favourite_threshold)


def edge_transfer_us(problem: Problem, graph: PlacementGraph, settings: Settings) -> FloatArray:
    """`[num_edges]`: time of all that goes along each edge of the graph, one after the other."""
    hands, machine = accelerators(problem), problem.machine
    sizes = graph.tensor_bytes[graph.input_tensor]
    pairs = [(src, dst) for src in hands for dst in hands if src != dst]
    takes_us = np.zeros(len(sizes))
    if pairs:
        takes_us = reduce(np.minimum, machine.transfers_us(sizes, pairs))
    takes_us = takes_us * settings.comm_factor
    if not settings.signals_cost_transfers:
        takes_us = np.where(graph.input_is_signal, machine.signal_us, takes_us)
    number = graph.num_nodes * graph.input_source + graph.input_node
    edge_number = graph.num_nodes * graph.edges[:, 0] + graph.edges[:, 1]
    edge = np.searchsorted(edge_number, number)
    return np.bincount(edge, takes_us, minlength=len(graph.edges)).astype(np.float64)


def rounded(num_nodes: int, edges: IntArray, x: FloatArray, threshold: float) -> IntArray:
    """`[num_nodes]`: one favourite child at most, of which it is the only parent."""
    child = np.full(num_nodes, NONE, dtype=np.int64)
    parent = np.full(num_nodes, NONE, dtype=np.int64)
    for tail, head in edges[x < threshold].tolist():
        child[tail] = head
        if parent[head] != NONE:
            child[parent[head]] = NONE
        parent[head] = tail
    return child


def solve_relaxation(edges: IntArray, time_us: FloatArray, transfer_us: FloatArray) -> Relaxation:
    """Solve the linear program with HiGHS: columns x, S, w; rows (1), (2), (3), (4).

    Args:
        edges: `[num_edges, 2]`, (before, after).
        time_us: `[num_nodes]`.
        transfer_us: `[num_edges]`.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    num_edges, num_nodes = len(edges), len(time_us)
    tail, head = edges.T
    edge, node = np.arange(num_edges), np.arange(num_nodes)
    start, makespan = num_edges, num_edges + num_nodes
    out, into = num_edges, num_edges + num_nodes  # where the rows of (2) and (3) begin
    end = num_edges + 2 * num_nodes  # and those of (4)
    one_edge, one_node = np.ones(num_edges), np.ones(num_nodes)
    entries = (
        (edge, start + head, one_edge),
        (edge, start + tail, -one_edge),
        (edge, edge, -transfer_us),
        (out + tail, edge, one_edge),
        (into + head, edge, one_edge),
        (end + node, np.full(num_nodes, makespan), one_node),
        (end + node, start + node, -one_node),
    )
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    least = np.concatenate(
        (
            time_us[tail],
            np.bincount(tail, minlength=num_nodes) - 1.0,
            np.bincount(head, minlength=num_nodes) - 1.0,
            time_us,
        )
    )
    cost = np.zeros(makespan + 1)
    cost[makespan] = 1.0
    bounds = np.zeros((makespan + 1, 2))
    bounds[:, 1] = np.where(np.arange(makespan + 1) < num_edges, 1.0, np.inf)
    matrix = csr_matrix((-values, (rows, columns)), shape=(len(least), makespan + 1))
    result = linprog(cost, matrix, -least, bounds=bounds, method="highs")
    if result.status != 0:
        raise RuntimeError(f"HiGHS ended the linear program of SCT: {result.message}")
    return Relaxation(result.x[:num_edges], float(result.x[makespan]))
