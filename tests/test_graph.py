"""Tests of OpGraph: its columns, derived structure, and refused inputs."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pesto_cli.data.columns import IntArray, unique_rows
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.errors import BadInputError


def test_build_sorts_tensors_and_drops_repeated_consumers() -> None:
    graph = OpGraph.build(
        list("abc"), [Tensor(1, 7, [2]), Tensor(0, 5, [2, 1, 2], [True, True, False])]
    )
    assert graph.tensor_bytes.tolist() == [5, 7]
    assert graph.consumers.tolist() == [1, 2, 2]
    assert graph.consumer_on_host.tolist() == [True, False, False]
    assert graph.op_tensors.tolist() == [0, 1, 2, 2]


def test_edges_join_data_and_control_without_repeats() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 5, [1])], control_edges=[(0, 1), (1, 2), (1, 2)])
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.successors[1].tolist() == [2]
    assert graph.predecessors[2].tolist() == [1]


@given(
    arrays(
        np.int64,
        st.tuples(st.integers(0, 30), st.integers(1, 3)),
        elements=st.integers(-3, 2**62),
    )
)
def test_rows_are_sorted_without_repeats(rows: IntArray) -> None:
    assert np.array_equal(unique_rows(rows), np.unique(rows, axis=0))


def test_topological_order_agrees_with_networkx() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        pairs = rng.integers(0, 30, (60, 2))
        label = rng.permutation(30)
        edges = [(label[a], label[b]) for a, b in pairs if a < b]
        graph = OpGraph.build([str(op) for op in range(30)], control_edges=edges)
        place = np.argsort(graph.topological_order)
        assert all(place[a] < place[b] for a, b in nx.DiGraph(edges).edges)


def test_groups_are_numbered_densely_and_none_is_a_group_of_one() -> None:
    graph = OpGraph.build(list("abcd"), colocation_group=[7, None, 7, None])
    assert graph.colocation_group.tolist() == [0, 1, 0, 2]
    assert [graph.groups[group].tolist() for group in range(3)] == [[0, 2], [1], [3]]


def test_alias_source_is_the_first_tensor_taken_from_the_aliased_op() -> None:
    graph = OpGraph.build(
        list("ab"),
        [Tensor(0, 1), Tensor(0, 2, [1]), Tensor(0, 3, [1]), Tensor(1, 2)],
        alias_of=[-1, 0],
    )
    assert graph.alias_source.tolist() == [-1, -1, -1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["a", "a"]}, "op 'a' appears twice"),
        ({"names": ["a"], "tensors": [Tensor(1, 5)]}, "tensors.producer names op 1"),
        ({"names": ["a"], "tensors": [Tensor(0, 5, [3])]}, "tensors.consumers names op 3"),
        ({"names": ["a"], "tensors": [Tensor(0, -5)]}, "op 'a' has tensor_bytes -5"),
        ({"names": ["a"], "resident_bytes": [-1]}, "op 'a' has resident_bytes -1"),
        ({"names": ["a"], "types": []}, "ops.types has 0 entries, 1 were expected"),
        ({"names": ["a"], "alias_of": [4]}, "ops.alias_of names op 4"),
        ({"names": ["a", "b"], "control_edges": [(0, 1), (1, 0)]}, "cycle: a -> b -> a"),
        ({"names": ["a"], "tensors": [Tensor(0, 5, [0])]}, "cycle: a -> a"),
    ],
)
def test_a_wrong_graph_is_refused_with_the_name_of_the_op(arguments: dict, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        OpGraph.build(**arguments)


def test_a_long_cycle_is_shortened() -> None:
    edges = [(op, (op + 1) % 100) for op in range(100)]
    with pytest.raises(BadInputError, match=r"92 more"):
        OpGraph.build([f"op{op}" for op in range(100)], control_edges=edges)
