"""The linear program of SCT, and the favourite children from its solution.

The program is from Hanen and Munier (1995), as used by Baechi (Jeon et al., Section 3.3;
`placer/m_sct.py`). p_i is the time of op i, c_ij the transfer time from i to j, and S_i the start
of i. x_ij = 0 if j is the favourite child of i; then j follows i on its device without a transfer:

    min  w
    (1)  S_i + p_i + c_ij x_ij <= S_j      for every edge (i, j)
    (2)  sum_j x_ij >= out-degree(i) - 1   i has at most one favourite child
    (3)  sum_i x_ij >= in-degree(j) - 1    j is the favourite child of at most one op
    (4)  S_i + p_i <= w
         S >= 0,  0 <= x <= 1

The number of devices is not limited. If x_ij is below a threshold, j becomes the favourite child
of i. If rounding gives an op several favourite children, or a child several parents, the last one
is used.

If devices or links differ, p is the shortest time of an op, and c the shortest time on any link.
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
FEW_EDGES = 2000  # graphs with no more edges take less than a second
TIME_IS_OVER = 1  # status of `linprog`


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A solution of the linear program: `x` is `[num_edges]`, and `makespan_us` is w."""

    x: FloatArray
    makespan_us: float


def favourite_children(
    problem: Problem, graph: PlacementGraph, settings: Settings, limits: Limits
) -> IntArray:
    """Return the favourite child of each node, or `NONE`, `[num_nodes]`.

    If the linear program is not solved in time, it is `NONE` for all nodes.
    """
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
    """Return the result of a solver, or None if the time is over before the solver ends.

    HiGHS ends at its own time limit, but it cannot be stopped on request. Then its thread continues
    in the background.
    """
    found: list[Relaxation | BaseException | None] = []

    def run() -> None:
        try:
            found.append(solve())
        except BaseException as error:  # raised again in the waiting thread
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
    """Return the total time of the transfers along each edge, `[num_edges]`."""
    candidates, machine = accelerators(problem), problem.machine
    sizes = graph.tensor_bytes[graph.input_tensor]
    pairs = [(src, dst) for src in candidates for dst in candidates if src != dst]
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
    """Return the favourite child of each node, or `NONE`, `[num_nodes]`, from the solution `x`."""
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
        edges: (before, after), `[num_edges, 2]`.
        time_us: time of each node, `[num_nodes]`.
        transfer_us: transfer time of each edge, `[num_edges]`.
        limit_s: time limit; after it, None is returned.
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
    """Return cost, matrix, right-hand side and bounds of the program, as `matrix @ x <= side`.

    Columns are x, S and w. Rows are (1) to (4), multiplied by -1.
    """
    from scipy.sparse import csr_matrix

    num_edges, num_nodes = len(edges), len(time_us)
    tail, head = edges.T
    edge, node = np.arange(num_edges), np.arange(num_nodes)
    start, makespan = num_edges, num_edges + num_nodes
    out, into = num_edges, num_edges + num_nodes  # first rows of (2) and (3)
    end = num_edges + 2 * num_nodes  # first row of (4)
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
