"""Conversion to networkx graphs and back: it is lossless, and names invalid attributes."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from conftest import two_gpus
from hypothesis import given, settings
from hypothesis import strategies as st
from random_problems import random_placement, random_problem

from pesto_cli.bounds import critical_path_us
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement
from pesto_cli.errors import BadInputError, InfeasibleError
from pesto_cli.files.networkx_graphs import from_networkx, problem_from_networkx, to_networkx

COLUMNS = (
    "colocation_group",
    "resident_bytes",
    "alias_of",
    "num_members",
    "tensor_producer",
    "tensor_bytes",
    "consumer_offsets",
    "consumers",
    "consumer_on_host",
    "control_edges",
)


def assert_same(one: OpGraph, other: OpGraph) -> None:
    assert (one.names, one.types) == (other.names, other.types)
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column), column)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Random problems, some with aliases, forbidden devices and less memory."""
    seed = draw(st.integers(0, 10**6))
    problem = random_problem(seed, draw(st.integers(1, 12)))
    rng = np.random.default_rng(seed)
    graph = problem.graph
    producer = np.full(graph.num_ops, -1)
    producer[graph.consumers] = graph.tensor_producer[graph.consumer_tensor]
    alias_of = np.where(rng.random(graph.num_ops) < 0.3, producer, -1)
    problem = replace(
        problem,
        graph=replace(graph, alias_of=alias_of, num_members=rng.integers(1, 5, graph.num_ops)),
    )
    permitted = random_permitted(problem, seed)
    return problem.constrained(permitted=permitted, headroom=draw(st.sampled_from([0.5, 1.0])))


def random_permitted(problem: Problem, seed: int) -> np.ndarray:
    """Return permitted devices that include the device of every op in a random placement."""
    device = random_placement(problem, seed)
    permitted = np.random.default_rng(seed).random(problem.permitted.shape) < 0.8
    permitted[np.arange(problem.num_ops), device] = True
    return permitted


@settings(max_examples=200, deadline=None)
@given(problems())
def test_a_problem_is_unchanged_by_conversion_and_back(problem: Problem) -> None:
    back = problem_from_networkx(to_networkx(problem))
    assert_same(problem.graph, back.graph)
    assert (problem.kinds, problem.headroom) == (back.kinds, back.headroom)
    assert back.machine is problem.machine
    np.testing.assert_array_equal(problem.time_us, back.time_us)
    np.testing.assert_array_equal(problem.permitted, back.permitted)


@settings(max_examples=50, deadline=None)
@given(problems())
def test_a_graph_is_unchanged_by_conversion_and_back_twice(problem: Problem) -> None:
    there = to_networkx(problem.graph)
    back = from_networkx(there)
    assert_same(problem.graph, back)
    assert nx.utils.graphs_equal(there, to_networkx(back))


def test_attributes_are_the_documented_ones(diamond: Problem) -> None:
    graph = to_networkx(diamond, Placement(np.array([1, 1, 2, 1]), np.array([0, 1, 0, 2])))
    assert graph.nodes["b"] == {
        "type": "MatMul",
        "time_us": {"GPU": 10.0},
        "device": "GPU:0",
        "rank": 1,
        "resident_bytes": 0,
        "alias_of": None,
        "num_members": 1,
        "output_bytes": (1000,),
    }
    assert graph.edges["a", "b", 0] == {"bytes": 1000, "output": 0, "on_host": False}
    assert graph.nodes["c"]["device"] == "GPU:1"


def test_networkx_agrees_on_the_critical_path(diamond: Problem) -> None:
    graph = to_networkx(diamond)
    for tail, _, edge in graph.edges(data=True):
        edge["us"] = graph.nodes[tail]["time_us"]["GPU"]
    last_us = graph.nodes["d"]["time_us"]["GPU"]
    assert nx.dag_longest_path_length(nx.DiGraph(graph), "us") + last_us == critical_path_us(
        diamond
    )


def test_a_plain_digraph_needs_only_times_and_bytes() -> None:
    graph = nx.DiGraph()
    graph.add_node("a", time_us=3)
    graph.add_node("b", time_us={"CPU": 2.0, "GPU": 1.0})
    graph.add_edge("a", "b", bytes=8)
    problem = problem_from_networkx(graph, two_gpus())
    on = dict(zip(problem.kinds, problem.time_us.T.tolist(), strict=True))
    assert on["GPU"] == [3.0, 1.0]
    assert np.isnan(on["CPU"][0])
    assert problem.graph.tensor_bytes.tolist() == [8]


def edged(**attributes: object) -> nx.MultiDiGraph:
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(["a", "b"], time_us=1.0)
    graph.add_edge("a", "b", **attributes)
    return graph


def test_outputs_are_in_the_order_of_their_numbers() -> None:
    graph = edged(bytes=8, output=1)
    graph.add_edge("a", "c", bytes=4, output=0)
    edges = to_networkx(from_networkx(graph)).edges(data=True)
    found = {(head, edge["output"], edge["bytes"]) for _, head, edge in edges}
    assert found == {("b", 1, 8), ("c", 0, 4)}


def test_shapes_may_be_numpy_integers() -> None:
    graph = edged(bytes=8)
    graph.nodes["b"].update(output_bytes=np.array([4]), output_shapes=[np.array([2, 1])])
    assert from_networkx(graph).tensor_shape == (None, (2, 1))


def test_invalid_attributes_are_named() -> None:
    cyclic = edged(bytes=1)
    cyclic.add_edge("b", "a", control=True)
    split = edged(bytes=1, output=0)
    split.add_edge("a", "b", bytes=2, output=0)
    unknown_alias, unknown_device, no_time, words, no_number, outputs = (
        edged(bytes=1) for _ in range(6)
    )
    listed_alias, listed_group, no_list, text = (edged(bytes=1) for _ in range(4))
    listed_alias.nodes["b"]["alias_of"] = ["a"]
    listed_group.nodes["b"]["group"] = [1]
    no_list.nodes["a"]["output_bytes"] = 5
    text.nodes["a"].update(output_bytes=[1], output_shapes=["ab"])
    slots = edged(bytes=1, slots=0)
    slots.add_nodes_from([("a", {"num_inputs": 0}), ("b", {"num_inputs": 1})])
    part_of_slot = edged(bytes=1, slots=[0.0])
    part_of_slot.add_nodes_from([("a", {"num_inputs": 0}), ("b", {"num_inputs": 1})])
    too_long, kind, kinds, headroom = (edged(bytes=1) for _ in range(4))
    too_long.nodes["a"]["time_us"] = 10**400
    kind.nodes["a"]["time_us"] = {3: 1.0}
    kinds.graph["kinds"] = "GPU"
    headroom.graph["headroom"] = "0.5"
    unknown_alias.nodes["b"]["alias_of"] = "z"
    unknown_device.nodes["b"]["devices"] = ["TPU:0"]
    del no_time.nodes["a"]["time_us"]
    words.nodes["a"]["time_us"] = "long"
    no_number.nodes["a"]["resident_bytes"] = "1 GiB"
    outputs.nodes["a"]["output_bytes"] = (float("inf"),)
    for graph, message in (
        (cyclic, "the graph has a cycle: a -> b -> a"),
        (nx.Graph(), "the networkx graph is undirected"),
        (edged(), "edge 'a' -> 'b' has no attribute bytes"),
        (edged(bytes="8 kB"), "edge 'a' -> 'b' has bytes '8 kB'; a number was expected"),
        (split, "edge 'a' -> 'b' has 2 bytes of output 0; 1 were expected"),
        (edged(bytes=1, output="first"), "edge 'a' -> 'b' has output 'first'; the number of"),
        (unknown_alias, "node 'b' has alias_of 'z', which is not in the graph (removed or"),
        (listed_alias, "node 'b' has alias_of ['a'], which is not in the graph (removed or"),
        (listed_group, "node 'b' has group [1]; a whole number, a text or None was expected"),
        (no_list, "node 'a' has output_bytes 5; a list was expected"),
        (text, "node 'a' has output_shapes 'ab'; sizes of dimensions were expected"),
        (slots, "edge 'a' -> 'b' has slots 0; a list was expected"),
        (part_of_slot, "edge 'a' -> 'b' has slot 0.0; a number below 1"),
        (too_long, "node 'a' has a time_us that is too large"),
        (kind, "the networkx graph has a time on 3; the name of a kind was expected"),
        (kinds, "the networkx graph has kinds 'GPU'; a list was expected"),
        (headroom, "the networkx graph has headroom '0.5'; a number was expected"),
        (edged(bytes=10**30), "a whole number from 0 to 35,184,372,088,832 was expected"),
        (edged(bytes=float("nan")), "edge 'a' -> 'b' has bytes nan"),
        (edged(bytes=-1), "edge 'a' -> 'b' has bytes -1"),
        (edged(bytes=2.5), "edge 'a' -> 'b' has bytes 2.5; a whole number from 0"),
        (outputs, "node 'a' has output_bytes inf"),
        (unknown_device, "node 'b' has 'TPU:0' in its attribute devices"),
        (no_time, "node 'a' has no attribute time_us"),
        (words, "node 'a' has time_us 'long'; a number was expected"),
        (no_number, "node 'a' has resident_bytes '1 GiB'; a number was expected"),
    ):
        with pytest.raises(BadInputError) as refused:
            problem_from_networkx(graph, two_gpus())
        assert message in str(refused.value)


def test_a_machine_is_required_and_has_to_fit(diamond: Problem) -> None:
    with pytest.raises(BadInputError, match=r"has no attribute machine and none was given"):
        problem_from_networkx(edged(bytes=1))
    graph = edged(bytes=1)
    graph.graph["machine"] = "v100x2-nvlink"
    with pytest.raises(BadInputError, match="'v100x2-nvlink'; a Machine was expected"):
        problem_from_networkx(graph)
    graph.nodes["a"]["time_us"] = {"TPU": 1.0}
    with pytest.raises(InfeasibleError, match=r"op 'a' .* can run on no device"):
        problem_from_networkx(graph, two_gpus())
    with pytest.raises(BadInputError, match="which has no devices"):
        to_networkx(diamond.graph, Placement(np.zeros(4, int), np.arange(4)))
