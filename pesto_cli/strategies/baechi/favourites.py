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

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from threading import Thread
from typing import Any

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.strategies.baechi.columns import NONE
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.settings import Settings
from pesto_cli.strategies.devices import accelerators

POLL_S = 0.05
FEW_EDGES = 2000  # take less than a second
TIME_IS_OVER = 1  # of `linprog`


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A solution: `x` is `[num_edges]`, `makespan_us` is w."""

    x: FloatArray
    makespan_us: float


def favourite_children(
    problem: Problem, graph: PlacementGraph, settings: Settings, limits: Limits
) -> IntArray:
    """`[num_nodes]`: the favourite child of each node, or `NONE`; that for all if time is over."""
    time_us = graph.duration_us.min(axis=1)
    transfer_us = edge_transfer_us(problem, graph, settings)
    is_limited = len(graph.edges) > FEW_EDGES and not limits.deterministic
    limit_s = limits.time_limit_s if is_limited else np.inf
    solution = _unless_over(
        lambda: solve_relaxation(graph.edges, time_us, transfer_us, limit_s),
        limits.begin() if is_limited else limits.stop.is_set,
    )
    if solution is None:
        return np.full(graph.num_nodes, NONE, dtype=np.int64)
    return rounded(graph.num_nodes, graph.edges, solution.x, settings.favourite_threshold)


def _unless_over(
    solve: Callable[[], Relaxation | None], is_over: Callable[[], bool]
) -> Relaxation | None:
    """What a solver finds, or None if the time is over before.

    HiGHS ends at its own time limit, but not on a request to stop: then its thread is left behind.
    """
    found: list[Relaxation | BaseException | None] = []

    def run() -> None:
        try:
            found.append(solve())
        except BaseException as error:  # for the thread that waits
            found.append(error)

    solver = Thread(target=run, daemon=True)
    solver.start()
    while solver.is_alive() and not is_over():
        solver.join(POLL_S)
    answer = found[0] if found else None
    if isinstance(answer, BaseException):
        raise answer
    return answer


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


def solve_relaxation(
    edges: IntArray, time_us: FloatArray, transfer_us: FloatArray, limit_s: float = np.inf
) -> Relaxation | None:
    """Solve the linear program with HiGHS.

    Args:
        edges: `[num_edges, 2]`, (before, after).
        time_us: `[num_nodes]`.
        transfer_us: `[num_edges]`.
        limit_s: then the answer is None.
    """
    from scipy.optimize import linprog

    cost, matrix, most, bounds = _linear_program(edges, time_us, transfer_us)
    options = {"time_limit": limit_s} if np.isfinite(limit_s) else {}
    result = linprog(cost, matrix, most, bounds=bounds, method="highs", options=options)
    if result.status == TIME_IS_OVER and options:
        return None
    if result.status != 0:
        raise RuntimeError(f"HiGHS ended the linear program of SCT: {result.message}")
    return Relaxation(result.x[: len(edges)], float(result.x[-1]))


def _linear_program(
    edges: IntArray, time_us: FloatArray, transfer_us: FloatArray
) -> tuple[FloatArray, Any, FloatArray, FloatArray]:
    """Cost, matrix, most and bounds: columns x, S, w; rows (1) to (4), with signs changed."""
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
    return cost, matrix, -least, bounds
