"""Compute the fewest control edges that make each device run its ops in the planned order."""

from itertools import pairwise

import numpy as np

from pesto_cli.data.columns import unique_rows
from pesto_cli.data.graph import Adjacency, BoolArray, IntArray, OpGraph, topological_order
from pesto_cli.data.schedule import Placement
from pesto_cli.errors import BadInputError

SHOWN_OF_A_CYCLE = 8


def order_edges(
    graph: OpGraph,
    placement: Placement,
    *,
    waits: BoolArray,
    awaited: BoolArray,
    enforced: BoolArray,
    branch: IntArray | None = None,
) -> IntArray:
    """Return the edges (before, after) to add to the graph, `[num_order_edges, 2]`.

    Every op that `waits` has to start after the last `awaited` op before it on its device. An edge
    is left out if a path of other edges already enforces it: order edges and graph are reduced
    transitively.

    The awaited ops of a device form a chain. So one number for each device describes all its
    awaited predecessors of an op: the highest rank of an awaited op with a path to this op. One
    pass in topological order computes the numbers, O(edges * devices). The ops of a branch form a
    separate chain on each device; of this chain, only edges that the graph has are left out.

    Args:
        graph: the ops of the step.
        placement: devices and ranks.
        waits: `[num_ops]`, whether the op may have to wait for earlier ops of its device.
        awaited: `[num_ops]`, whether later ops may have to wait for the op. Every awaited op waits.
        enforced: `[num_edges]`, whether `graph.edges[i]` always delays the whole second op until
            the first has ended.
        branch: `[num_ops]`, ops with the same number from 1 on run in the same steps: each also has
            to start after the previous one on its device. 0 for all others, which is the default.

    Raises:
        BadInputError: the order contradicts the precedence of the graph; it names a pair of ops.
    """
    device, rank = placement.device.tolist(), placement.rank.tolist()
    previous = _previous_awaited(placement, waits, awaited).tolist()
    peers = _previous_of_branch(placement, branch) if branch is not None else {}
    pairs = [(before, op) for op, before in enumerate(previous) if before >= 0]
    chains = np.array([*pairs, *((peer, op) for op, peer in peers.items())])
    kept = graph.edges[enforced]
    predecessors = Adjacency.from_edges(graph.num_ops, kept[:, 1], kept[:, 0])
    highest = np.full((graph.num_ops, int(placement.device.max(initial=0)) + 1), -1)
    added = []
    for op in _topological_order(graph, chains.reshape(-1, 2)):
        before, reached = previous[op], highest[op]
        if predecessors.degree[op]:
            highest[predecessors[op]].max(axis=0, out=reached)
        peer = peers.get(op, op)
        if peer != op and peer not in predecessors[op]:
            added.append((peer, op))
            np.maximum(reached, highest[peer], out=reached)
        if before >= 0 and reached[device[op]] < rank[before]:
            added.append((before, op))
            np.maximum(reached, highest[before], out=reached)
        if awaited[op]:
            reached[device[op]] = rank[op]
    return np.array(added, dtype=np.int64).reshape(-1, 2)


def _previous_awaited(placement: Placement, waits: BoolArray, awaited: BoolArray) -> IntArray:
    """`[num_ops]`: the last awaited op before each op that waits, on its device; -1 for none."""
    previous = np.full(len(placement.device), -1, dtype=np.int64)
    last: dict[int, int] = {}
    for op in np.lexsort((placement.rank, placement.device)).tolist():
        device = int(placement.device[op])
        if waits[op]:
            previous[op] = last.get(device, -1)
        if awaited[op]:
            last[device] = op
    return previous


def _previous_of_branch(placement: Placement, branch: IntArray) -> dict[int, int]:
    """Return {op in a branch: previous op of the same branch on its device}, if there is one."""
    previous: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    for op in np.lexsort((placement.rank, placement.device)).tolist():
        key = int(placement.device[op]), int(branch[op])
        if key[1] > 0:
            if key in last:
                previous[op] = last[key]
            last[key] = op
    return previous


def _topological_order(graph: OpGraph, chains: IntArray) -> list[int]:
    """Return the ops in topological order of the graph with the edges `chains`, (before, after)."""
    edges = unique_rows(np.concatenate((graph.edges, chains)).astype(np.int64))
    order = topological_order(Adjacency.from_edges(graph.num_ops, edges[:, 0], edges[:, 1]))
    if len(order) < graph.num_ops:
        raise _contradiction(graph, chains, edges)
    return order


def _contradiction(graph: OpGraph, chains: IntArray, edges: IntArray) -> BadInputError:
    """Return the error for an order that creates a cycle; it names one of the cycle's pairs."""
    import networkx as nx

    cycle = [tail for tail, _ in nx.find_cycle(nx.DiGraph(edges.tolist()))]
    of_order = {(before, after) for before, after in chains.tolist()}
    of_order -= {(before, after) for before, after in graph.edges.tolist()}
    at = next(i for i, pair in enumerate(pairwise([*cycle, cycle[0]])) if pair in of_order)
    way = [graph.names[op] for op in cycle[at + 1 :] + cycle[: at + 1]]
    early, late = way[-1], way[0]
    if len(way) > SHOWN_OF_A_CYCLE:
        way = [*way[:4], f"... {len(way) - 8} more ...", *way[-4:]]
    return BadInputError(
        f"the placement runs {early!r} before {late!r} on one device, but {late!r} must end before "
        f"{early!r} can start ({' -> '.join(way)}); an order that agrees with the graph was "
        "expected: solve a profile of this graph again."
    )
