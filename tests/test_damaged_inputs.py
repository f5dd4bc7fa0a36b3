"""Damaged inputs that fuzzing has found; each is refused in one sentence."""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto, on_gpus
from fuzz.seeds import write_saved_model
from test_bad_input import MACHINE, node, small_graph

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.grappler import inline_functions
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.traces.chrome_timeline import read_chrome
from pesto_cli.profile.traces.step_stats import recorded_step
from pesto_cli.runtime.feeds import batches
from pesto_cli.strategies import STRATEGIES, Context

PROFILE = ("profile", *MACHINE)


def variable(meta: Any) -> None:
    meta.collection_def["variables"].bytes_list.value[:] = [b"\x0a\xff no VariableDef"]


def context(meta: Any) -> None:
    meta.collection_def["cond_context"].bytes_list.value[:] = [b"\x0a\xff no CondContextDef"]


def colocation(meta: Any) -> None:
    node(meta.graph_def, "y").attr["_class"].list.s.append(b"loc:@\xf6")


def output_number(meta: Any) -> None:
    node(meta.graph_def, "y").input[0] = "x:first"


def attribute_kind(meta: Any) -> None:
    node(meta.graph_def, "loss").attr["T"].shape.dim.add(size=3)


def fetch(meta: Any) -> None:
    meta.collection_def["train_op"].node_list.value[:] = ["nowhere"]


@pytest.mark.parametrize(
    ("damage", "argv", "words"),
    [
        (variable, PROFILE, "a variable is damaged"),
        (context, ("export",), "cannot import the graph"),
        (colocation, PROFILE, "_class of node 'y' is damaged"),
        (output_number, PROFILE, "'x:first'; NODE or NODE:NUMBER was expected"),
        (attribute_kind, PROFILE, "attribute T of the wrong kind"),
        (fetch, ("run", "-m", "local-workers:1"), "node 'nowhere' is needed, but not in the graph"),
    ],
)
def test_a_damaged_field_of_a_graph_is_refused(
    pesto: Pesto, tmp_path: Path, damage: Callable[[Any], None], argv: Sequence[str], words: str
) -> None:
    meta, graph = small_graph(), tmp_path / "g.meta"
    damage(meta)
    write_meta_graph(graph, meta)
    output = () if argv[0] == "run" else ("-o", tmp_path / "out.meta")
    done = pesto(argv[0], graph, *argv[1:], *output)
    assert (done.code, words in done.err, f"{graph}: " in done.err) == (2, True, True), done.err
    assert list(tmp_path.iterdir()) == [graph]


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The graph of a SavedModel whose steps are functions."""
    folder = tmp_path_factory.mktemp("saved")
    write_saved_model(folder)
    return (folder / "saved_model.pb").read_bytes()


def test_damaged_saved_values_are_refused(pesto: Pesto, tmp_path: Path) -> None:
    write_saved_model(tmp_path / "saved")
    (tmp_path / "saved/variables/variables.index").write_bytes(b"no checkpoint")
    refused = pesto("export", tmp_path / "saved", "-o", tmp_path / "out.meta")
    assert refused.code == 2
    assert "the saved values cannot be read" in refused.err


def meta_of(data: bytes) -> Any:
    tensorflow()
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    return SavedModel.FromString(data).meta_graphs[0]


def test_recursive_functions_are_not_inlined_endlessly(
    pesto: Pesto, tmp_path: Path, saved_model: bytes
) -> None:
    graph, meta = tmp_path / "g.meta", meta_of(saved_model)
    for function in meta.graph_def.library.function:
        for inner in function.node_def:
            if inner.op == "StatefulPartitionedCall":
                inner.attr["f"].func.name = function.signature.name
    write_meta_graph(graph, meta)
    refused = pesto("export", graph, "-o", tmp_path / "out.meta", "--fetch", "NoOp")
    assert refused.code == 2
    assert "calls itself" in refused.err


def test_inlining_functions_does_not_compute_a_large_input(saved_model: bytes) -> None:
    meta = meta_of(saved_model)
    (fed,) = [each for each in meta.graph_def.node if each.name == "train_images"]
    fed.attr["shape"].shape.dim[0].size = 2**50
    meta.collection_def["train_op"].node_list.value[:] = ["StatefulPartitionedCall:0"]
    flat = inline_functions(meta, "the graph")
    (found,) = [each for each in flat.graph_def.node if each.name == "train_images"]
    assert [dim.size for dim in found.attr["shape"].shape.dim] == [2**50, 4]


def test_an_input_that_the_optimizer_would_compute_is_refused(pesto: Pesto, tmp_path: Path) -> None:
    tf, graph = tensorflow(), tmp_path / "g.meta"
    with tf.Graph().as_default() as built:
        tf.tanh(tf.compat.v1.placeholder(tf.float32, [2**40], name="x"), name="y")
        write_meta_graph(graph, tf.compat.v1.train.export_meta_graph(graph=built))
    refused = pesto("export", graph, "-o", tmp_path / "out.meta", "--optimize")
    assert refused.code == 2
    assert "input 'x' has 4,398,046,511,104 bytes" in refused.err
    assert "the optimiser allocates; at most" in refused.err


@pytest.mark.parametrize("header", [b"'shape': ((), ", b"'shape': (9999999, 99999), "])
def test_arrays_with_damaged_headers_are_refused(tmp_path: Path, header: bytes) -> None:
    array, path = io.BytesIO(), tmp_path / "feeds.npz"
    np.lib.format.write_array(array, np.ones((4, 3), np.float32))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", array.getvalue().replace(b"'shape': (4, 3), ", header))
    with pytest.raises(BadInputError, match="cannot be read"):
        next(batches(small_graph(), str(path)))


def test_a_trace_with_a_list_as_process_is_refused(tmp_path: Path) -> None:
    trace = {"traceEvents": [{"ph": "M", "name": "process_name", "pid": [1]}]}
    with pytest.raises(BadInputError, match="without traceEvents"):
        read_chrome(tmp_path / "t.json", json.dumps(trace).encode())


def test_an_output_without_a_type_has_no_recorded_size() -> None:
    stats = tensorflow().compat.v1.RunMetadata().step_stats
    row = stats.dev_stats.add(device="/device:CPU:0").node_stats.add(
        node_name="y", timeline_label="y = MatMul(x)"
    )
    row.output.add().tensor_description.dtype = 9999
    assert recorded_step(stats).rows[0].output_bytes == {}


@pytest.mark.parametrize("name", ["heft", "fastt", "metis"])
def test_a_baseline_that_is_out_of_time_returns_its_best_result(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"op_{op}" for op in range(40)]
    tensors = [Tensor(op, 5000 + 100 * op, [op + 4, op + 7]) for op in range(33)]
    problem = on_gpus(OpGraph.build(names, tensors), [10.0] * 40)
    asked: list[None] = []
    list_schedule = Simulator.list_schedule

    def counted(*arguments: Any) -> Any:
        asked.append(None)
        return list_schedule(*arguments)

    monkeypatch.setattr(Simulator, "list_schedule", counted)
    STRATEGIES[name](problem, Context(Limits(time_limit_s=1e-9)))
    in_no_time = len(asked)
    STRATEGIES[name](problem, Context(Limits(time_limit_s=1e-9, deterministic=True)))
    assert 0 < in_no_time <= 4 < len(asked) - in_no_time
