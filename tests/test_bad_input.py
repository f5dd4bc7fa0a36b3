"""Bad input at the command line: one message, the right exit code, and no new files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Pesto
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.presets import PRESETS
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow

MACHINE = ("-m", "v100x2-nvlink")


def small_graph(change: Callable[[Any], None] | None = None, rows: int = 4) -> Any:
    """A step of y = x W with an SGD update, changed before it is exported."""
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [rows, 3], name="x")
        weights = tf.compat.v1.get_variable("w", [3, 2], use_resource=True)
        loss = tf.reduce_sum(tf.matmul(x, weights, name="y"), name="loss")
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        for fetch in (train, loss):
            graph.add_to_collection("train_op", fetch)
        meta = tf.compat.v1.train.export_meta_graph(graph=graph)
    if change is not None:
        change(meta.graph_def)
    return meta


def node(graph_def: Any, name: str) -> Any:
    return next(node for node in graph_def.node if node.name == name)


def cycle(graph_def: Any) -> None:
    node(graph_def, "y").input[0] = "loss"


def own_input(graph_def: Any) -> None:
    node(graph_def, "y").input[0] = "y"


def unknown_type(graph_def: Any) -> None:
    node(graph_def, "loss").op = "FusedEverything"


def dynamic(graph_def: Any) -> None:
    node(graph_def, "x").attr["shape"].shape.dim[0].size = -1
    for each in graph_def.node:
        if "_output_shapes" in each.attr:
            del each.attr["_output_shapes"]


def dangling(graph_def: Any) -> None:
    node(graph_def, "y").input[0] = "nowhere"


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (cycle, 2, ["2 nodes form a cycle", "y", "loss"]),
        (own_input, 2, ["1 node forms a cycle (y -> y)"]),
        (unknown_type, 3, ["FusedEverything"]),
        (dynamic, 2, ["x", "Give `pesto export` or `pesto place` its shape: --feed x=32,3"]),
        (dangling, 2, ["nowhere"]),
    ],
)
def test_a_graph_that_cannot_be_profiled(
    pesto: Pesto, tmp_path: Path, change: Callable[[Any], None], code: int, words: list[str]
) -> None:
    graph, output = tmp_path / "g.meta", tmp_path / "g.profile.json"
    write_meta_graph(graph, small_graph(change))
    done = pesto("profile", graph, *MACHINE, "-o", output)
    assert done.code == code
    assert f"{graph}: " in done.err
    assert all(word in done.err for word in words)
    assert list(tmp_path.iterdir()) == [graph]


def truncated(path: Path) -> None:
    write_meta_graph(path, small_graph())
    path.write_bytes(path.read_bytes()[:700])


def text(path: Path) -> None:
    path.write_text("this is no graph\n")


def json_profile(path: Path) -> None:
    path.write_text(json.dumps({"format": "pesto-profile"}))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("export", "zoo:RNNLM-tiny"), "out.meta"),
        (("place", "zoo:RNNLM-tiny", *MACHINE), "out.meta"),
        (("apply", "gone.meta", "gone.placement.json"), "out.meta"),
        (("train", "grl", "gone.profile.json"), "out.npz"),
    ],
)
def test_an_output_with_the_ending_of_another_kind_of_file_is_refused(
    pesto: Pesto, tmp_path: Path, argv: tuple[str, ...], expected: str
) -> None:
    done = pesto(*argv, "-o", tmp_path / "out.json")
    assert done.code == 2
    assert "out.json ends in .json, as files of another kind do" in done.err
    assert f"was expected, such as {tmp_path / expected}: rename it." in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_graph_is_not_exported_without_its_fetches(pesto: Pesto, tmp_path: Path) -> None:
    done = pesto("export", "zoo:RNNLM-tiny", "-o", tmp_path / "out.pb")
    assert (done.code, "a name that ends in .meta or .pbtxt was expected" in done.err) == (2, True)


@pytest.mark.parametrize("make", [truncated, text, json_profile, empty])
@pytest.mark.parametrize("verb", ["profile", "export"])
def test_a_file_that_holds_no_graph(
    pesto: Pesto, tmp_path: Path, make: Callable[[Path], None], verb: str
) -> None:
    graph, output = tmp_path / "g.meta", tmp_path / "out.meta"
    make(graph)
    machine = MACHINE if verb == "profile" else ()
    done = pesto(verb, graph, *machine, "-o", output)
    assert done.code == 2
    assert "g.meta" in done.err
    assert list(tmp_path.iterdir()) == [graph]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--fetch", "trian"), ["trian", "train"]),
        (("--feed", "y=4,3"), ["y", "placeholder"]),
        (("--feed", "x=four"), ["--feed", "NAME=SHAPE"]),
        (("--signature", "serving"), ["signature"]),
    ],
)
def test_export_options_that_do_not_fit(
    pesto: Pesto, tmp_path: Path, options: tuple[str, str], words: list[str]
) -> None:
    graph = tmp_path / "g.meta"
    write_meta_graph(graph, small_graph())
    done = pesto("export", graph, "-o", tmp_path / "out.meta", *options)
    assert done.code == 2
    assert all(word in done.err for word in words)
    assert list(tmp_path.iterdir()) == [graph]


def test_a_missing_file_is_reported_before_its_signature(pesto: Pesto, tmp_path: Path) -> None:
    done = pesto("export", tmp_path / "gone", "--signature", "serving", "-o", tmp_path / "x.meta")
    assert done.code == 2
    assert "gone: no such file" in done.err
    assert "--signature" not in done.err


def test_a_dynamic_shape_is_fixed_as_the_message_says(pesto: Pesto, tmp_path: Path) -> None:
    graph, fixed = tmp_path / "g.meta", tmp_path / "fixed.meta"
    write_meta_graph(graph, small_graph(dynamic))
    assert pesto("export", graph, "-o", fixed, "--feed", "x=4,3").code == 0
    assert read_step(api.read_meta_graph(fixed)).graph.tensor_bytes.max() == 48


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A graph, its profile and a placement of it."""
    folder = tmp_path_factory.mktemp("small")
    files = {name: folder / name for name in ("graph.meta", "profile.json", "placement.json")}
    meta = small_graph()
    write_meta_graph(files["graph.meta"], meta)
    profile = api.profile(meta, api.read_machine(MACHINE[1]))
    api.write_profile(files["profile.json"], profile)
    solved = api.solve(profile, "round-robin")
    api.write_placement(files["placement.json"], api.placement(profile, solved))
    return files


def test_a_placement_of_another_graph_is_not_applied(
    pesto: Pesto, tmp_path: Path, small: dict[str, Path]
) -> None:
    other, output = tmp_path / "other.meta", tmp_path / "out.meta"
    write_meta_graph(other, small_graph(rows=8))
    refused = pesto("apply", other, small["placement.json"], "-o", output)
    assert refused.code == 2
    assert "another graph" in refused.err
    assert not output.exists()


def test_a_device_that_is_not_mapped_is_named(
    pesto: Pesto, tmp_path: Path, small: dict[str, Path]
) -> None:
    files = (small["graph.meta"], small["placement.json"], "-o", tmp_path / "out.meta")
    refused = pesto("apply", *files, "--devices", "GPU:0=/device:CPU:0")
    assert refused.code == 2
    assert "GPU:1" in refused.err
    assert not (tmp_path / "out.meta").exists()


def test_a_device_of_a_type_without_known_kernels_is_refused(
    pesto: Pesto, tmp_path: Path, small: dict[str, Path]
) -> None:
    placement, output = tmp_path / "tpu.json", tmp_path / "out.meta"
    placement.write_text(small["placement.json"].read_text().replace("GPU:1", "TPU:0"))
    refused = pesto("apply", small["graph.meta"], placement, "-o", output)
    assert refused.code == 2
    assert "the placement has ops on /device:TPU:0" in refused.err
    assert not output.exists()
    mapped = ("--devices", "CPU:0=CPU:0,GPU:0=GPU:0,TPU:0=GPU:1")
    assert pesto("apply", small["graph.meta"], placement, "-o", output, *mapped).code == 0


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("devices = []\nlinks = []\n", ["the machine has no device"]),
        (
            "[[devices]]\nname = 'a'\nkind = 'GPU'\n",
            ["devices.0 (a) has no memory_bytes; a whole number of bytes was", "add it"],
        ),
        ("devices = ]", ["is not TOML", "line 1", "correct it there"]),
        (
            "links = []\n[[devices]]\nname = 'a'\nkind = 'GPU'\nmemory_bytes = 1\n"
            "[[devices]]\nname = 'b'\nkind = 'GPU'\nmemory_bytes = 1\n",
            ["no link a -> b", "add one"],
        ),
        (b"\xcf\xfa\xed\xfe", ["binary data, not TOML", "a text file was expected"]),
    ],
)
def test_an_error_in_a_machine_names_its_file(
    pesto: Pesto, tmp_path: Path, small: dict[str, Path], machine: str | bytes, words: list[str]
) -> None:
    path, output = tmp_path / "machine.toml", tmp_path / "p.json"
    path.write_bytes(machine if isinstance(machine, bytes) else machine.encode())
    refused = pesto("profile", small["graph.meta"], "-m", path, "-o", output)
    assert refused.code == 2
    assert all(word in refused.err for word in [str(path), *words])
    assert not output.exists()


@pytest.mark.parametrize(
    ("rules", "code", "words"),
    [
        ("[[pin]]\nops = 'z*'\ndevice = 'GPU:0'", 2, ["'z*' matches none"]),
        ("[[pin]]\nops = '*'\ndevice = 'TPU'", 2, ["'TPU'"]),
        ("[[forbid]]\nops = 'y'\ndevice = 'GPU'", 3, ["'y'", "the constraints forbid these"]),
    ],
)
def test_an_error_in_constraints_names_their_file(
    pesto: Pesto, tmp_path: Path, small: dict[str, Path], rules: str, code: int, words: list[str]
) -> None:
    path, output = tmp_path / "rules.toml", tmp_path / "p.json"
    path.write_text(rules)
    refused = pesto("solve", small["profile.json"], "--constraints", path, "-o", output)
    assert refused.code == code
    assert all(word in refused.err for word in [f"{path}: ", *words])
    assert not output.exists()


def test_json_without_format_or_entry_says_what_to_give(pesto: Pesto, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    for value, words in (
        ({"a": 1}, "has no format, 'pesto-profile' was expected: give a profile"),
        (
            {"format": "pesto-profile", "version": 1},
            "the file has no machine; a table with the keys",
        ),
    ):
        other.write_text(json.dumps(value))
        refused = pesto("solve", other, "-o", tmp_path / "p.json")
        assert refused.code == 2
        assert words in refused.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,kind,us\ny,GPU,-3\n", ["line 2", "-3"]),
        ("name,kind,us\ny,GPU,\n", ["line 2", "us"]),
        ("name,kind,us\ny,GPU,fast\n", ["line 2", "fast"]),
        ("name,kind,us\nyy,GPU,3\n", ["line 2", "yy"]),
        ("name,kind,us\ny,GPU,3\n", ["time"]),
        ("name,us\ny,3\n", ["kind"]),
    ],
)
def test_wrong_or_missing_op_times_of_a_csv_file_are_refused(
    pesto: Pesto, tmp_path: Path, small: dict[str, Path], text: str, words: list[str]
) -> None:
    costs, output = tmp_path / "costs.csv", tmp_path / "new.json"
    costs.write_text(text)
    source = ("--source", f"csv:{costs}")
    refused = pesto("profile", small["graph.meta"], *MACHINE, "-o", output, *source)
    assert refused.code == 2
    assert all(word in refused.err for word in words)
    assert not output.exists()


def test_an_unknown_cost_source_lists_those_that_exist(
    pesto: Pesto, tmp_path: Path, small: dict[str, Path]
) -> None:
    source = ("--source", "trce:log", "-o", tmp_path / "new.json")
    refused = pesto("profile", small["graph.meta"], *MACHINE, *source)
    assert refused.code == 2
    assert "analytic, csv" in refused.err
    assert "Did you mean 'trace'?" in refused.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--steps", 5), "--steps is for real steps"),
        (("--warm-up", 5), "--warm-up is for real steps"),
        (("--feeds", "none.npz"), "--feeds is for real steps"),
        (("-m", "new.json"), "new.json is also an input"),
    ],
)
def test_options_that_a_profile_without_real_steps_would_ignore_are_refused(
    pesto: Pesto, small: dict[str, Path], options: tuple[object, ...], message: str
) -> None:
    refused = pesto("profile", small["graph.meta"], *MACHINE, "-o", "new.json", *options)
    assert refused.code == 2
    assert message in refused.err


def test_a_profile_is_kept_if_its_chart_cannot_be_drawn(
    pesto: Pesto, tmp_path: Path, small: dict[str, Path]
) -> None:
    output, plot = tmp_path / "new.json", tmp_path / "plot.svg"
    refused = pesto("profile", small["graph.meta"], *MACHINE, "-o", output, "--plot", plot)
    assert refused.code == 2
    assert output.exists()
    assert not plot.exists()


def test_quiet_notes_are_only_in_the_profile(
    pesto: Pesto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def build(tf: Any) -> list[Any]:
        values = tf.compat.v1.placeholder(tf.float32, [30, 7], name="values")
        return [tf.identity(tf.boolean_mask(values, values[:, 0] > 0), name="some")]

    graph, output = tmp_path / "g.meta", tmp_path / "g.profile.json"
    write_meta_graph(graph, exported(build))
    assert pesto("profile", graph, *MACHINE, "-o", output).code == 0
    assert "depends on the data and was estimated" in caplog.text
    caplog.clear()
    assert pesto("profile", graph, *MACHINE, "-o", output, "--quiet").code == 0
    assert caplog.text == ""
    assert "depends on the data and was estimated" in output.read_text()


def test_an_unknown_machine_is_refused_with_the_known_ones(
    pesto: Pesto, tmp_path: Path, small: dict[str, Path]
) -> None:
    refused = pesto("profile", small["graph.meta"], "-m", "my.toml", "-o", tmp_path / "new.json")
    assert refused.code == 2
    assert f"{[*PRESETS][-1]}, local-workers:N, local-gpus, or the path of a TOML" in refused.err
