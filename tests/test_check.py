"""`pesto check`: fresh, stale or regressed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Pesto

from pesto_cli import api
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.diff import graph_diff
from pesto_cli.files import PlacementFile, read_profile, write_placement, write_profile
from pesto_cli.files.placement import fingerprints

MODEL = """
import tensorflow as tf
tf1 = tf.compat.v1
def build():
    values = tf1.placeholder(tf.float32, [4, 8], name="values")
    for layer in range({layers}):
        with tf1.variable_scope(f"layer_{{layer}}"):
            weights = tf1.get_variable("weights", [8, 8], use_resource=True)
            values = tf.nn.relu(tf.matmul(values, weights))
    loss = tf.reduce_mean(values, name="loss")
    return tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
"""
Files = tuple[Path, Path, Path]


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Files]:
    """Return graph, profile and placement of a version of the model."""
    folder = tmp_path_factory.mktemp("versions")

    def made(layers: int = 2) -> Files:
        script = folder / f"{layers} layers.py"
        graph, profile, placement = (script.with_suffix(s) for s in (".meta", ".p", ".placed"))
        if not placement.exists():
            script.write_text(MODEL.format(layers=layers))
            meta = api.export(f"{script}:build")
            api.write_meta_graph(graph, meta)
            api.write_profile(profile, api.profile(meta, api.read_machine("v100x2-nvlink")))
            priced = read_profile(profile)
            result = api.solve(priced, "expert")
            write_placement(placement, api.placement(priced, result))
        return graph, profile, placement

    return made


def checked(pesto: Pesto, *argv: object) -> tuple[int, dict[str, Any]]:
    done = pesto("check", *argv, "--json")
    return done.code, json.loads(done.out)


def test_a_placement_of_this_graph_and_profile_is_fresh(
    pesto: Pesto, version: Callable[..., Files]
) -> None:
    graph, profile, placement = version()
    assert pesto("check", graph, placement).code == 0
    code, found = checked(pesto, graph, placement, "--profile", profile, "--max-regression", "0%")
    assert (code, found["status"], found["slower_by"]) == (0, "fresh", 0)
    assert found["now"]["step_us"] == found["promised"]["step_us"]
    assert found["now"]["sent_bytes"] == found["promised"]["sent_bytes"]
    assert checked(pesto, f"{graph.with_suffix('.py')}:build", placement)[0] == 0


def test_a_placement_is_stale_after_a_layer_was_added(
    pesto: Pesto, version: Callable[..., Files]
) -> None:
    graph, _, _ = version(layers=3)
    code, found = checked(pesto, graph, version()[2])
    assert (code, found["status"]) == (1, "stale")
    assert {name.split("/")[0] for name in found["graph"]["new"]} >= {"layer_2", "gradients"}
    assert "gradients/layer_1/Relu_grad/ReluGrad" in found["graph"]["changed_ops"]
    assert found["graph"]["gone"] == []
    shrunk = checked(pesto, version()[0], version(layers=3)[2])[1]
    assert shrunk["graph"]["gone"] == found["graph"]["new"]


def graph_of(batch: int = 4, kind: str = "Relu") -> OpGraph:
    """Return a graph: weights -> read -> product -> an op of type `kind`."""
    tensors = [Tensor(0, 256, [1]), Tensor(1, 256, [2]), Tensor(2, batch * 32, [3])]
    types = ["VarHandleOp", "ReadVariableOp", "MatMul", kind]
    return OpGraph.build(["weights", "read", "product", "through"], tensors, types=types)


def test_ops_are_changed_if_their_type_or_inputs_differ() -> None:
    graph = graph_of()
    names = list(graph.names)
    placed = PlacementFile(
        ["GPU:0"], names, [0] * 4, [0, 1, 2, 3], fingerprints(graph), {"graph_hash": "0"}, {}
    )
    assert not graph_diff(placed, graph, "0")
    assert not graph_diff(placed, graph, None)
    attributes = graph_diff(placed, graph, "1")
    assert attributes
    assert attributes.changed == attributes.new == attributes.gone == ()
    assert graph_diff(placed, graph_of(batch=8), "1").changed == ("through",)
    assert graph_diff(placed, graph_of(kind="Tanh"), None).changed == ("through",)


def slowed(version: Callable[..., Files], tmp_path: Path, times: float) -> Path:
    _, path, _ = version()
    profile = read_profile(path)
    problem = replace(profile.problem, time_us=profile.problem.time_us * times)
    write_profile(tmp_path / "slow.json", replace(profile, problem=problem))
    return tmp_path / "slow.json"


@pytest.mark.parametrize(
    ("times", "status"), [(1.0001, "stale"), (0.5, "stale"), (1.5, "regressed")]
)
def test_another_profile_is_stale_and_a_slower_step_regressed(
    pesto: Pesto, version: Callable[..., Files], tmp_path: Path, times: float, status: str
) -> None:
    graph, _, placement = version()
    profile = slowed(version, tmp_path, times)
    options = ("--profile", profile, "--max-regression", "2%")
    code, found = checked(pesto, graph, placement, *options)
    assert (code, found["status"], found["graph"]["changed"]) == (1, status, False)
    shown = pesto("check", graph, placement, *options, "--quiet")
    assert shown.out == ""
    assert status in shown.err
    unjudged = checked(pesto, graph, placement, "--profile", profile)[1]
    assert unjudged["status"] == "stale"


def test_a_placement_that_no_longer_fits_into_memory_has_regressed(
    pesto: Pesto, version: Callable[..., Files], tmp_path: Path
) -> None:
    graph, path, placement = version()
    profile = read_profile(path)
    machine = profile.problem.machine
    small = tuple(replace(device, memory_bytes=300) for device in machine.devices)
    problem = replace(profile.problem, machine=replace(machine, devices=small))
    write_profile(tmp_path / "small.json", replace(profile, problem=problem))
    done = pesto("check", graph, placement, "--profile", tmp_path / "small.json")
    assert done.code == 1
    assert "short of memory" in done.err


def test_profiles_without_a_file_are_compared_by_their_predictions(
    version: Callable[..., Files],
) -> None:
    graph, path, _ = version()
    profile = replace(read_profile(path), file_hash="")
    placed = api.placement(profile, api.solve(profile, "expert"))
    meta = api.read_meta_graph(graph)
    assert str(api.check(meta, placed, profile).freshness) == "fresh"
    problem = replace(profile.problem, time_us=profile.problem.time_us * 2)
    assert str(api.check(meta, placed, replace(profile, problem=problem)).freshness) == "stale"


def test_inputs_that_do_not_match_are_refused(
    pesto: Pesto, version: Callable[..., Files], tmp_path: Path, diamond_profile: Path
) -> None:
    graph, profile, placement = version()
    for argv, words in (
        ((graph, placement, "--profile", diamond_profile), ", but of another graph"),
        ((graph, placement, "--max-regression", "2%"), "--profile was expected"),
        ((graph, profile), "'pesto-placement' was expected"),
        ((graph, placement, "--summary", graph), "is also an input"),
        ((tmp_path / "none.meta", placement), "none.meta"),
    ):
        done = pesto("check", *argv)
        assert (done.code, words in done.err) == (2, True), done.err


def test_a_placement_of_another_model_is_stale_without_a_prediction(
    pesto: Pesto, version: Callable[..., Files], tmp_path: Path
) -> None:
    graph, profile, _ = version()
    other = PlacementFile(["GPU:0"], ["x"], [0], [0], ["0" * 8], {}, {})
    write_placement(tmp_path / "other.json", other)
    code, found = checked(pesto, graph, tmp_path / "other.json", "--profile", profile)
    assert (code, found["status"], found["now"]) == (1, "stale", None)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("fingerprint", ["0"]),
        ("predicted", {"step_us": "soon"}),
        ("predicted", {"peak_bytes": [1]}),
        ("predicted", {"sent_bytes": [[1]]}),
    ],
)
def test_damaged_placements_are_refused(
    pesto: Pesto, version: Callable[..., Files], tmp_path: Path, entry: str, value: Any
) -> None:
    graph, _, placement = version()
    damaged = json.loads(placement.read_text()) | {entry: value}
    (tmp_path / "p.json").write_text(json.dumps(damaged))
    done = pesto("check", graph, tmp_path / "p.json")
    assert (done.code, entry in done.err) == (2, True)
