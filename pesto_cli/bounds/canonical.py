"""An order of ops that depends neither on their indices nor on the unit of time.

If an algorithm breaks ties by index, its result depends on the order of ops in a file. So every op
gets a colour: a hash of its own properties, its predecessors, its successors and its colocation
group. This is colour refinement (Weisfeiler and Leman, 1968). It begins with one pass in each
direction along all edges, because the graph has no cycles. Ops of one colour are nearly always
images of each other under an automorphism; then their order does not matter.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pesto_cli.data.graph import FloatArray, IntArray, OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem
from pesto_cli.kernels import kernel

# Times that differ by less than this share of the largest time are equal. Sums of doubles in
# another order differ by rounding, and so do products with another unit of time.
RESOLUTION = 1e-10

# Rounds of colour refinement: with two, neighbours of neighbours count.
NUM_ROUNDS = 2

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR, SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

Colours = NDArray[np.uint64]  # `[num_ops]`


@cached_per_problem
def canonical_order(problem: Problem) -> IntArray:
    """Return the ops in a topological order, by height and then by colour, `[num_ops]`."""
    colour = _refined(problem.graph, _own(problem))
    return np.lexsort((colour, problem.graph.heights))


@cached_per_problem
def canonical_place(problem: Problem) -> IntArray:
    """Return the place of every op in `canonical_order`, `[num_ops]`."""
    place = np.empty(problem.num_ops, dtype=np.int64)
    place[canonical_order(problem)] = np.arange(problem.num_ops)
    return place


def rounded(time_us: FloatArray) -> FloatArray:
    """Return times in whole units of `RESOLUTION * largest time`, rounded; inf stays inf."""
    largest = np.where(np.isfinite(time_us), np.abs(time_us), 0.0).max(initial=0.0)
    return np.round(time_us / (RESOLUTION * largest)) if largest > 0 else time_us


def _own(problem: Problem) -> Colours:
    """Return first colours: hashes of each op's own properties, without its neighbours."""
    graph = problem.graph
    times = rounded(np.where(problem.allowed, problem.duration_us, np.inf))
    columns = np.column_stack(
        (
            times,
            *((problem.slow_down,) if problem.machine.has_contention else ()),
            problem.is_feed,
            problem.is_fetch,
            graph.resident_bytes,
            graph.num_members,
            graph.alias_of == np.arange(graph.num_ops),
            graph.alias_of >= 0,
            np.bincount(graph.tensor_producer, graph.tensor_bytes, graph.num_ops),
        )
    ).astype(np.float64)
    colour = np.zeros(graph.num_ops, dtype=np.uint64)
    for column in columns.T:
        colour = _mixed(colour + np.ascontiguousarray(column + 0.0).view(np.uint64))
    return colour


def _refined(graph: OpGraph, own: Colours) -> Colours:
    """Refine colours by the predecessors, successors and colocation group of each op."""
    data = np.column_stack((graph.tensor_producer[graph.consumer_tensor], graph.consumers))
    before, after = np.concatenate((data, graph.control_edges)).T
    sizes = graph.tensor_bytes[graph.consumer_tensor].astype(np.uint64)
    sizes = _mixed(sizes + np.diff(graph.consumer_offsets).astype(np.uint64)[graph.consumer_tensor])
    kind = np.concatenate(
        (
            _mixed(sizes + graph.consumer_on_host.astype(np.uint64)),
            np.zeros(len(graph.control_edges), dtype=np.uint64),
        )
    )
    in_group = np.zeros(graph.num_groups, dtype=np.uint64)
    np.add.at(in_group, graph.colocation_group, _mixed(own))
    own = _mixed(own + in_group[graph.colocation_group])
    down = _swept(own, before, after, kind, graph.heights)
    up = _swept(own, after, before, kind, -graph.heights)
    colour: Colours = _mixed(down + _mixed(up))
    for _ in range(NUM_ROUNDS):
        ahead, behind = np.zeros_like(colour), np.zeros_like(colour)
        np.add.at(ahead, after, _mixed(colour[before] + kind))
        np.add.at(behind, before, _mixed(colour[after] + kind))
        colour = _mixed(colour + _mixed(ahead + _mixed(behind)))
    return colour


def _swept(
    own: Colours, tails: IntArray, heads: IntArray, kind: Colours, level: IntArray
) -> Colours:
    """Return colours that include all ops from which an op is reachable, in order of `level`."""
    order = np.lexsort((heads, level[heads]))
    colour: Colours = _mixed(own)
    _sweep(colour, own, tails[order], heads[order], kind[order])
    return colour


@kernel
def _sweep(colour: Colours, own: Colours, tails: IntArray, heads: IntArray, kind: Colours) -> None:
    """Set the colours of heads; edges of one head are adjacent, and after those of its tails."""
    edge = 0
    while edge < len(heads):
        head, reached = heads[edge], np.uint64(0)
        while edge < len(heads) and heads[edge] == head:
            reached += _mixed(colour[tails[edge]] + kind[edge])
            edge += 1
        colour[head] = _mixed(own[head] + _mixed(reached))


@kernel
def _mixed(value: Any) -> Any:
    """Scramble all bits of a colour, or of an array of colours.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014, `mix64`.
    """
    mixed = value + STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * FIRST_FACTOR
    mixed = (mixed ^ (mixed >> np.uint64(27))) * SECOND_FACTOR
    return mixed ^ (mixed >> np.uint64(31))
