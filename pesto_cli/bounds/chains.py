"""Longest paths of the op graph without transfers, with each op on its fastest device."""

import numpy as np

from pesto_cli.data.graph import Adjacency, FloatArray, IntArray, OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem
from pesto_cli.kernels import kernel


@cached_per_problem
def critical_path_us(problem: Problem) -> float:
    """Return the length of the critical path in us, with each op on its fastest device."""
    time_us = problem.min_duration_us
    through = heads(problem.graph, time_us) + time_us
    return float(through.max(initial=0.0))


def heads(graph: OpGraph, time_us: FloatArray) -> FloatArray:
    """Return the longest path before the start of each op in us, `[num_ops]`."""
    return _longest(graph.topological_order, graph.predecessors, time_us)


def tails(graph: OpGraph, time_us: FloatArray) -> FloatArray:
    """Return the longest path after the end of each op in us, `[num_ops]`."""
    return _longest(graph.topological_order[::-1].copy(), graph.successors, time_us)


def _longest(order: IntArray, before: Adjacency, time_us: FloatArray) -> FloatArray:
    longest_us: FloatArray = longest_before(order, before.offsets, before.indices, time_us)
    return longest_us


@kernel
def longest_before(order, offsets, indices, time_us):  # type: ignore[no-untyped-def]
    """Return the longest path before each op in us, `[num_ops]`; rows have the predecessors."""
    longest = np.zeros(len(order))
    for op in order:
        for row in range(offsets[op], offsets[op + 1]):
            before = indices[row]
            longest[op] = max(longest[op], longest[before] + time_us[before])
    return longest
