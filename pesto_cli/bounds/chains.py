"""Longest chains of ops, each on its fastest device, without transfers."""

import numpy as np

from pesto_cli.data.graph import Adjacency, FloatArray, IntArray, OpGraph
from pesto_cli.data.problem import Problem


def critical_path_us(problem: Problem) -> float:
    """Longest chain of ops, each on its fastest device."""
    time_us = problem.min_duration_us
    through = heads(problem.graph, time_us) + time_us
    return float(through.max(initial=0.0))


def heads(graph: OpGraph, time_us: FloatArray) -> FloatArray:
    """`[num_ops]`: the longest chain that ends where an op starts."""
    return _longest_before(graph.topological_order, graph.predecessors, time_us)


def tails(graph: OpGraph, time_us: FloatArray) -> FloatArray:
    """`[num_ops]`: the longest chain that starts where an op ends."""
    return _longest_before(graph.topological_order[::-1], graph.successors, time_us)


def _longest_before(order: IntArray, before: Adjacency, time_us: FloatArray) -> FloatArray:
    offsets, indices = before.offsets.tolist(), before.indices.tolist()
    duration = time_us.tolist()
    longest = [0.0] * len(duration)
    through = [0.0] * len(duration)
    for op in order.tolist():
        rows = indices[offsets[op] : offsets[op + 1]]
        longest[op] = max((through[row] for row in rows), default=0.0)
        through[op] = longest[op] + duration[op]
    return np.array(longest)
