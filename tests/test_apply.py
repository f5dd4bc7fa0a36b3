"""The order of a placement as control edges, and a placed graph as a file."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pesto_cli.apply.order import order_edges
from pesto_cli.errors import BadInputError
from pesto_cli.graph import OpGraph
from pesto_cli.schedule import Placement

MAX_OPS = 12


@st.composite
def ordered_graphs(draw: st.DrawFn) -> tuple[OpGraph, Placement]:
    """A random DAG, random devices, and ranks after a random topological order."""
    size = draw(st.integers(1, MAX_OPS))
    pairs = [(i, j) for j in range(size) for i in range(j)]
    edges = [pair for pair in pairs if draw(st.integers(0, 3)) == 0]
    label = draw(st.permutations(range(size)))
    names = [f"op{i}" for i in range(size)]
    graph = OpGraph.build(names, control_edges=[(label[i], label[j]) for i, j in edges])
    device = np.array(draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    urgency = draw(st.permutations(range(size)))
    sequence = nx.lexicographical_topological_sort(_networkx(graph), key=lambda op: urgency[op])
    rank, used = np.zeros(size, dtype=np.int64), [0, 0, 0]
    for op in sequence:
        rank[op] = used[device[op]]
        used[device[op]] += 1
    return graph, Placement(device, rank)


def _networkx(graph: OpGraph) -> nx.DiGraph:
    digraph = nx.DiGraph()
    digraph.add_nodes_from(range(graph.num_ops))
    digraph.add_edges_from(graph.edges.tolist())
    return digraph


def _order_edges(graph: OpGraph, placement: Placement) -> list[tuple[int, int]]:
    everywhere = np.ones(graph.num_ops, dtype=bool)
    added = order_edges(
        graph,
        placement,
        waits=everywhere,
        awaited=everywhere,
        enforced=np.ones(len(graph.edges), dtype=bool),
    )
    return [(before, after) for before, after in added.tolist()]


@given(ordered_graphs())
@settings(max_examples=300, deadline=None)
def test_order_edges_are_those_of_the_transitive_reduction(
    case: tuple[OpGraph, Placement],
) -> None:
    graph, placement = case
    complete = _networkx(graph)
    for a in range(graph.num_ops):
        for b in range(graph.num_ops):
            if placement.device[a] == placement.device[b] and placement.rank[a] < placement.rank[b]:
                complete.add_edge(a, b)
    needed = set(nx.transitive_reduction(complete).edges) - set(_networkx(graph).edges)
    assert set(_order_edges(graph, placement)) == needed
