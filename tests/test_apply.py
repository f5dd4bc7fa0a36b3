"""Control edges for the order of a placement, and placed graphs in files."""

import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pesto_cli.apply import (
    PlacementMayBeLostWarning,
    apply,
    check_session_config,
    parse_devices,
    planned_changes,
    session_config,
    write_tf_pesto,
)
from pesto_cli.apply.devices import tensorflow_devices
from pesto_cli.apply.order import order_edges
from pesto_cli.cli import main
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.schedule import Placement
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile, write_placement
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow

MAX_OPS = 12


@st.composite
def ordered_graphs(draw: st.DrawFn) -> tuple[OpGraph, Placement]:
    """Draw a random DAG, random devices, and ranks from a random topological order."""
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


def _pairs_in_order(placement: Placement) -> Iterator[tuple[int, int]]:
    """Yield all pairs of ops on one device, the op of lower rank first."""
    ops = range(len(placement.device))
    for a, b in ((a, b) for a in ops for b in ops):
        if placement.device[a] == placement.device[b] and placement.rank[a] < placement.rank[b]:
            yield a, b


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
    complete.add_edges_from(_pairs_in_order(placement))
    needed = set(nx.transitive_reduction(complete).edges) - set(_networkx(graph).edges)
    assert set(_order_edges(graph, placement)) == needed


@given(ordered_graphs())
@settings(max_examples=300, deadline=None)
def test_the_graph_stays_acyclic_and_every_device_becomes_a_chain(
    case: tuple[OpGraph, Placement],
) -> None:
    graph, placement = case
    ordered = _networkx(graph)
    ordered.add_edges_from(_order_edges(graph, placement))
    assert nx.is_directed_acyclic_graph(ordered)
    for before, after in _pairs_in_order(placement):
        assert nx.has_path(ordered, before, after)


@given(ordered_graphs(), st.data())
@settings(max_examples=300, deadline=None)
def test_ops_that_may_not_wait_or_be_awaited_get_no_edges_and_the_others_stay_in_order(
    case: tuple[OpGraph, Placement], data: st.DataObject
) -> None:
    graph, placement = case

    def flags(size: int) -> np.ndarray:
        return np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)

    waits = flags(graph.num_ops)
    awaited = waits & flags(graph.num_ops)
    enforced = flags(len(graph.edges))
    added = order_edges(graph, placement, waits=waits, awaited=awaited, enforced=enforced).tolist()
    assert all(awaited[before] and waits[after] for before, after in added)
    holding = nx.DiGraph([*graph.edges[enforced].tolist(), *added])
    holding.add_nodes_from(range(graph.num_ops))
    for before, after in _pairs_in_order(placement):
        if awaited[before] and waits[after]:
            assert nx.has_path(holding, before, after)


@given(ordered_graphs(), st.data())
@settings(max_examples=300, deadline=None)
def test_only_ops_of_the_same_branch_wait_for_ops_of_a_branch(
    case: tuple[OpGraph, Placement], data: st.DataObject
) -> None:
    graph, placement = case
    numbers = st.lists(st.integers(0, 2), min_size=graph.num_ops, max_size=graph.num_ops)
    branch = np.array(data.draw(numbers))
    added = order_edges(
        graph,
        placement,
        waits=np.ones(graph.num_ops, dtype=bool),
        awaited=branch == 0,
        enforced=np.ones(len(graph.edges), dtype=bool),
        branch=branch,
    ).tolist()
    assert all(branch[before] in (0, branch[after]) for before, after in added)
    assert set(map(tuple, added)).isdisjoint(map(tuple, graph.edges.tolist()))
    holding = _networkx(graph)
    holding.add_edges_from(added)
    assert nx.is_directed_acyclic_graph(holding)
    for before, after in _pairs_in_order(placement):
        if branch[before] in (0, branch[after]):
            assert nx.has_path(holding, before, after)


def test_an_order_against_precedence_is_refused_and_the_error_names_the_pair() -> None:
    chain = OpGraph.build(["first", "between", "last"], control_edges=[(0, 1), (1, 2)])
    backwards = Placement(np.array([0, 1, 0]), np.array([1, 0, 0]))
    with pytest.raises(
        BadInputError, match=r"runs 'last' before 'first'.*first -> between -> last"
    ):
        _order_edges(chain, backwards)


def test_orders_of_two_devices_that_wait_for_each_other_are_refused() -> None:
    # a -> b and c -> d, but one device has d before a, and the other b before c.
    graph = OpGraph.build(["a", "b", "c", "d"], control_edges=[(0, 1), (2, 3)])
    crossed = Placement(np.array([0, 1, 1, 0]), np.array([1, 0, 1, 0]))
    with pytest.raises(BadInputError, match=r"'[bd]' before '[ac]' on one device"):
        _order_edges(graph, crossed)


@pytest.fixture(scope="module")
def meta() -> Any:
    """A step with both kinds of variables, two paths that join, and an op that no GPU can run."""
    tf = tensorflow()
    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:7"):
        x = tf1.placeholder(tf.float32, [2, 2], name="x")
        w = tf1.get_variable("w", [2, 2])
        v = tf1.get_variable("v", [2, 2], use_resource=False)
        left, right = tf.matmul(x, w, name="left"), tf.add(w, v, name="right")
        with graph.colocate_with(w.op):
            both = tf.add(left, right, name="both")
        text = tf.strings.as_string(both, name="text")
        update = tf1.assign(w, both).op
        for fetch in (update, text):
            graph.add_to_collection("train_op", fetch)
        return tf1.train.export_meta_graph(graph=graph)


ON_GPUS = {"x": "CPU:0", "text": "CPU:0", "_retval_text_0": "CPU:0", "left": "GPU:1"}


def in_graph_order(meta: Any, device_of: dict[str, str]) -> PlacementFile:
    """Place ops on the given devices, else on GPU:0, with ranks in topological order."""
    step = read_step(meta)
    devices = ["CPU:0", "GPU:0", "GPU:1"]
    used = [0, 0, 0]
    device, rank = [0] * step.graph.num_ops, [0] * step.graph.num_ops
    for op in step.graph.topological_order:
        device[op] = devices.index(device_of.get(step.graph.names[op], "GPU:0"))
        rank[op] = used[device[op]]
        used[device[op]] += 1
    provenance = {"graph_hash": step.graph_hash}
    return PlacementFile(devices, list(step.graph.names), device, rank, [], provenance, {})


def _nodes(meta: Any) -> dict[str, Any]:
    return {node.name: node for node in meta.graph_def.node}


def test_every_node_of_the_step_gets_its_device_and_the_input_graph_is_unchanged(meta: Any) -> None:
    before = meta.SerializeToString(deterministic=True)
    placed = apply(meta, in_graph_order(meta, ON_GPUS))
    assert meta.SerializeToString(deterministic=True) == before
    device = {name: node.device for name, node in _nodes(placed).items()}
    assert device["left"] == "/device:GPU:1"
    assert device["w"] == device["right"] == device["both"] == "/device:GPU:0"
    assert device["text"] == "/device:CPU:0"
    # TensorFlow's placer puts nodes outside the step on the device of the variable.
    assert device["w/Assign"] == device["w/Initializer/random_uniform/RandomUniform"] == ""


def test_no_colocation_joins_nodes_on_different_devices(meta: Any) -> None:
    chosen = in_graph_order(meta, {**ON_GPUS, "both": "GPU:1"})
    assert "_class" in _nodes(meta)["both"].attr
    placed = _nodes(apply(meta, chosen))
    assert "_class" not in placed["both"].attr
    assert "_class" in placed["w/Initializer/random_uniform/RandomUniform"].attr


def test_order_none_adds_no_control_edge(meta: Any) -> None:
    placed = _nodes(apply(meta, in_graph_order(meta, ON_GPUS), order="none"))
    assert {name: list(node.input) for name, node in placed.items()} == {
        name: list(node.input) for name, node in _nodes(meta).items()
    }


def test_control_edges_are_added_only_if_the_graph_leaves_the_order_open(meta: Any) -> None:
    changes = planned_changes(meta, in_graph_order(meta, {**ON_GPUS, "left": "GPU:0"}))
    assert changes.waits_for["right"] == ["left"]
    assert "both" not in changes.waits_for  # It has both of them as inputs.


def test_ops_that_a_session_runs_without_the_step_get_no_control_inputs(meta: Any) -> None:
    chosen = in_graph_order(meta, ON_GPUS)
    rank = dict(zip(chosen.names, chosen.rank, strict=True))
    assert rank["v/read"] > rank["right/ReadVariableOp"]
    assert not {"w", "v", "v/read"} & planned_changes(meta, chosen).waits_for.keys()


def test_a_placement_of_another_graph_is_refused_and_nothing_is_written(
    meta: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = replace(in_graph_order(meta, ON_GPUS), provenance={"graph_hash": "0" * 64})
    graph, plan, output = (tmp_path / name for name in ("a.meta", "a.json", "placed.meta"))
    write_meta_graph(graph, meta)
    write_placement(plan, chosen)
    monkeypatch.setattr(sys, "argv", ["pesto", "apply", str(graph), str(plan), "-o", str(output)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert "placement of another graph" in message
    assert "hash 000000000000," in message
    assert f"this graph has {read_step(meta).graph_hash[:12]};" in message
    assert not output.exists()


def test_a_graph_that_is_placed_already_is_refused(meta: Any) -> None:
    provenance = {"graph_hash": read_step(meta).graph_hash}
    chosen = replace(in_graph_order(meta, ON_GPUS), provenance=provenance)
    placed = apply(meta, chosen)
    with pytest.raises(BadInputError, match="is placed already, and has the control dependencies"):
        apply(placed, chosen)


def test_a_placement_of_other_ops_is_refused(meta: Any) -> None:
    chosen = in_graph_order(meta, ON_GPUS)
    names = ["other" if name == "left" else name for name in chosen.names]
    with pytest.raises(BadInputError, match=r"another graph: it lacks 1 ops such as 'left'"):
        apply(meta, replace(chosen, names=names, provenance={}))
    fewer = replace(
        chosen,
        names=chosen.names[1:],
        device=chosen.device[1:],
        rank=chosen.rank[1:],
        provenance={},
    )
    with pytest.raises(BadInputError, match=r"or expand it .* made from a coarse profile"):
        apply(meta, fewer)


def test_a_split_colocation_group_is_refused(meta: Any) -> None:
    with pytest.raises(BadInputError, match="shares a variable"):
        apply(meta, in_graph_order(meta, {**ON_GPUS, "w": "GPU:1"}))


def test_an_op_without_a_kernel_for_its_device_is_refused(meta: Any) -> None:
    with pytest.raises(BadInputError, match=r"'text' .AsString. is placed on /device:GPU:0"):
        apply(meta, in_graph_order(meta, {**ON_GPUS, "text": "GPU:0"}))


def test_planned_devices_are_mapped_to_tensorflow_devices(meta: Any) -> None:
    devices = parse_devices("CPU:0=/job:worker/task:1/device:CPU:0, GPU:0=CPU:1,GPU:1=CPU:1")
    device = planned_changes(meta, in_graph_order(meta, ON_GPUS), devices=devices).device
    assert device["text"] == "/job:worker/task:1/device:CPU:0"
    assert device["left"] == device["right"] == "/device:CPU:1"


def test_devices_of_a_cluster_need_no_mapping() -> None:
    planned = ["worker:0/CPU:0", "worker:0/GPU:1", "ps:12/CPU:0"]
    assert tensorflow_devices(planned, {1, 2}, {}) == {
        1: "/job:worker/task:0/device:GPU:1",
        2: "/job:ps/task:12/device:CPU:0",
    }
    moved = {"worker:0/CPU:0": "worker:3/CPU:0"}
    assert tensorflow_devices(planned, {0}, moved) == {0: "/job:worker/task:3/device:CPU:0"}


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("GPU:0=CPU:0,GPU:2=CPU:0", "'GPU:2' is not a device of the placement"),
        ("GPU:0=/device:CPU:0,CPU:0=CPU:0", "GPU:1 has ops, but is not mapped"),
        ("GPU:0", "PLANNED=TENSORFLOW was expected"),
        ("GPU:0=CPU:0,GPU:0=CPU:1", "GPU:0 is mapped twice"),
        ("GPU:0=first,GPU:1=CPU:0,CPU:0=CPU:0", "'GPU:0' is mapped to 'first'"),
    ],
)
def test_a_device_mapping_that_does_not_fit_is_refused(
    meta: Any, devices: str, message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        apply(meta, in_graph_order(meta, ON_GPUS), devices=parse_devices(devices))


def test_tf_pesto_files_list_devices_and_predecessors(meta: Any, tmp_path: Path) -> None:
    changes = planned_changes(meta, in_graph_order(meta, {**ON_GPUS, "left": "GPU:0"}))
    write_tf_pesto(tmp_path, changes)
    parts = json.loads((tmp_path / "part.json").read_text())
    dependencies = json.loads((tmp_path / "cdep.json").read_text())
    assert {"text": "/device:CPU:0"} in parts
    assert len(parts) == len(changes.device)
    assert {"right": ["left"]} in dependencies
    assert len(dependencies) == len(changes.waits_for)


def test_settings_that_may_change_a_placed_graph_cause_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_session_config(session_config()) == ()
    with pytest.warns(PlacementMayBeLostWarning, match="disable_meta_optimizer = True.*level = L0"):
        assert len(check_session_config()) == 2
    soft = session_config()
    soft.allow_soft_placement = True
    with pytest.warns(PlacementMayBeLostWarning, match="allow_soft_placement"):
        assert check_session_config(soft) == ("allow_soft_placement",)
