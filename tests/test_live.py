"""Unmodified v1 programs run with a placement: identical results, planned devices and order."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
from conftest import Write
from test_apply_in_tensorflow import (
    Model,
    Training,
    _spans,
    moved,
    ordered_ops,
    round_robin_placement,
    too_early,
)

from pesto_cli import api
from pesto_cli.apply import ProgramReport, run_script
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.containers import read_meta_graph
from pesto_cli.graphdef.programs.capture import capture
from pesto_cli.graphdef.programs.run import run_program
from pesto_cli.graphdef.read import StepGraph, read_step

EXAMPLE = Path(__file__).parent.parent / "examples" / "train_v1.py"


def captured_placement(path: Path, argv: Sequence[str] = ()) -> PlacementFile:
    """Return a round-robin placement of the program's captured step on two CPU devices."""
    return round_robin_placement(read_step(capture(path, argv).meta))


def check_trace(report: ProgramReport, chosen: PlacementFile) -> None:
    """Check that every node ran on its device, and no op before ops of lower rank ended."""
    ran = Training([], [_spans(report.traced.step_stats)])
    model = Model(report.meta, read_step(report.meta, open_shapes=True))
    assert moved(report.changes.device, ran) == []
    assert too_early(model, chosen, report.changes.device, ran) == []
    assert {device for device, _ in ran.spans[0]} >= {"/device:CPU:0", "/device:CPU:1"}
    names = {node for _, node in ran.spans[0]}
    assert all(set(nodes) & names for nodes in ordered_ops(model).values())


@pytest.mark.parametrize("monitored", [[], ["--monitored"]], ids=["Session", "Monitored"])
def test_a_program_trains_identically_on_the_planned_devices_in_the_planned_order(
    monitored: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--steps", "6", *monitored]
    chosen = captured_placement(EXAMPLE, argv)
    run_program(EXAMPLE, argv)
    expected = capsys.readouterr().out
    report = run_script(EXAMPLE, argv, chosen, trace=True)
    assert capsys.readouterr().out == expected
    assert expected.count("loss") == 6
    assert len(report.step_us) == 6
    assert report.changes.num_control_edges > 0
    check_trace(report, chosen)


# Two networks after one loop, trained together and separately, and evaluated in between.
BY_TURNS = """
import sys
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1
if "v1 loop" in sys.argv:
    tf1.disable_control_flow_v2()

def normal(name, *shape):
    return tf1.get_variable(name, shape, initializer=tf1.random_normal_initializer(seed=1))

with tf.Graph().as_default() as graph:
    x = tf1.placeholder(tf.float32, [None, 3], name="x")
    y = tf1.placeholder(tf.float32, [None, 3], name="y")
    keep = tf1.placeholder_with_default(1.0, [], name="keep")
    w = normal("w", 3, 3)
    loop = tf1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.matmul(v, w)), (0, x))[1]
    losses, trains = [], []
    for name in "ab":
        with tf1.variable_scope(name):
            guess = tf.tanh(tf.matmul(loop * keep, normal("v", 3, 3)))
            losses.append(tf.reduce_mean(tf.square(guess - y), name=f"loss_{name}"))
            own = [v for v in tf1.trainable_variables() if v.name.startswith(name)]
            sgd = tf1.train.GradientDescentOptimizer(0.1)
            trains.append(sgd.minimize(losses[-1], var_list=own, name=f"train_{name}"))
    train = tf.group(*trains, name="train")
    init = tf1.global_variables_initializer()
    if "final" in sys.argv:
        graph.finalize()

random = np.random.default_rng(0)
def batch(rows):
    return {x: random.normal(size=(rows, 3)), y: random.normal(size=(rows, 3))}

def show(*values):
    print(*(np.asarray(value).tobytes().hex() for value in values))

with tf1.Session(graph=graph) as session:
    session.run(init)
    for _ in range(4):
        show(*session.run([train, losses], {**batch(4), keep: 0.5})[1])
        show(session.run([trains[1], losses[1]], batch(4))[1])
        show(session.run(losses[1], batch(7)))
        show(session.run(loop, {x: np.ones((2, 3))}))
        show(*session.run(graph.get_collection("trainable_variables")))
"""


def ranked_first(scope: str, step: StepGraph, chosen: PlacementFile) -> PlacementFile:
    """Return the placement with ops in a scope as early as possible in the order."""
    graph = step.graph
    early = {op for op, name in enumerate(graph.names) if name.startswith(scope)}
    needed = nx.DiGraph(graph.edges.tolist())
    early |= {source for op in early if op in needed for source in nx.ancestors(needed, op)}
    order = graph.topological_order.tolist()
    order.sort(key=lambda op: op not in early)
    device_of = dict(zip(chosen.names, chosen.device, strict=True))
    count = {device: iter(range(len(order))) for device in chosen.device}
    rank = {graph.names[op]: next(count[device_of[graph.names[op]]]) for op in order}
    return replace(chosen, rank=[rank[name] for name in chosen.names])


@pytest.mark.parametrize("argv", [["v1 loop"], ["final"]], ids=["v1 loop", "v2 loop, finalised"])
def test_other_runs_of_the_graph_compute_the_same_and_run_no_part_of_the_step(
    argv: Sequence[str], script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(BY_TURNS)
    step = read_step(capture(path, argv).meta)
    chosen = ranked_first("a/", step, round_robin_placement(step))
    run_program(path, argv)
    expected = capsys.readouterr().out
    report = run_script(path, argv, chosen, trace=True)
    assert capsys.readouterr().out == expected
    assert len(report.step_us) == 4
    check_trace(report, chosen)
    # With the order, they would also have trained the other network.
    assert {("b/train_b", "b/loss_b:0"), ("b/loss_b:0",)} <= set(report.unordered)


STATES = """
import tensorflow as tf
tf1 = tf.compat.v1

with tf.Graph().as_default():
    rows = tf1.placeholder(tf.float32, [5, 3], name="rows")
    w = tf1.get_variable("w", [3, 3], initializer=tf1.random_normal_initializer(seed=1))
    read = tf1.TensorArray(tf.float32, 5).unstack(rows)
    def step(time, written):
        return time + 1, written.write(time, tf.tanh(tf.linalg.matvec(w, read.read(time))))
    start = tf.constant(0), tf1.TensorArray(tf.float32, 5)
    _, written = tf1.while_loop(lambda time, _: time < 5, step, start)
    loss = tf.reduce_mean(tf.square(written.stack() - 0.5), name="loss")
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        for number in range(3):
            print(session.run([train, loss], {rows: [[number, 1, 2]] * 5})[1])
"""


def test_a_loop_over_arrays_of_tensors_with_feeds_of_static_sizes(
    script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(STATES)
    chosen = captured_placement(path)
    run_program(path, [])
    expected = capsys.readouterr().out
    assert len(run_script(path, [], chosen).step_us) == 3
    assert capsys.readouterr().out == expected


# Trains according to its argument; without one, it is the program of the placement.
PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1
way = sys.argv[1] if len(sys.argv) > 1 else ""

with tf.Graph().as_default(), tf1.Session() as other:
    other.run(tf.constant(1.0) + 1.0)

graph = tf.Graph()
config = tf1.ConfigProto(allow_soft_placement=True) if way == "soft" else None
session = tf1.Session(graph=graph, config=config)
with graph.as_default(), session:
    x = tf1.placeholder(tf.float32, [None, 3], name="x")
    scale = tf.identity(tf.reduce_max(x), name="scale")
    w = tf1.get_variable("w", [3, 7 if way == "wider" else 5])
    if way == "late":
        session.run(w.initializer)
    y = tf.matmul(x, w, name="y") * scale
    if way == "deeper":
        y = tf.tanh(y)
    if way == "function":
        y = tf.function(tf.tanh)(y)
    loss = tf.reduce_mean(tf.square(y - 1.0), name="loss")
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    session.run(tf1.global_variables_initializer())
    rows = 4 if way == "rows" else 2
    if way != "idle":
        print(session.run([train, loss], {x: np.ones((rows, 3)), scale: 2.0})[1] > 0)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PlacementFile]:
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)
    return path, captured_placement(path)


@pytest.mark.parametrize("way", ["", "rows"])
def test_a_feed_may_replace_another_op_than_a_placeholder_and_have_another_batch_size(
    way: str, program: tuple[Path, PlacementFile], capsys: pytest.CaptureFixture[str]
) -> None:
    path, chosen = program
    report = run_script(path, [way], chosen)
    assert capsys.readouterr().out == "True\n"
    assert "Max" not in report.changes.device


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("wider", "train/update_w.* of another type, or with other inputs or sizes"),
        ("deeper", "'Tanh'.* only in this graph"),
        ("function", "'PartitionedCall'.* a call of a tf.function"),
        ("late", "'w'.* already used by a session"),
        ("idle", "did not run the step"),
    ],
)
def test_a_program_that_trains_another_graph_is_stopped_before_it_trains(
    way: str,
    expected: str,
    program: tuple[Path, PlacementFile],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, chosen = program
    with pytest.raises(BadInputError, match=expected):
        run_script(path, [way], chosen)
    assert capsys.readouterr().out == ""


def test_a_session_gets_the_settings_that_keep_a_placed_graph(
    program: tuple[Path, PlacementFile], caplog: pytest.LogCaptureFixture
) -> None:
    path, chosen = program
    plain = run_script(path, [], chosen).sessions
    assert caplog.messages == []
    assert "graph_options.rewrite_options.disable_meta_optimizer" in plain[1].adjusted
    soft = run_script(path, ["soft"], chosen).sessions
    assert "requests allow_soft_placement = True" in caplog.text
    assert "allow_soft_placement" in soft[1].adjusted
    assert [report.target for report in soft] == ["", ""]


def test_the_error_for_a_missing_device_names_it(program: tuple[Path, PlacementFile]) -> None:
    path, chosen = program
    devices = {"CPU:0": "/device:CPU:0", "CPU:1": "/device:GPU:7"}
    with pytest.raises(BadInputError, match=r"uses /device:GPU:7, where one of /job:localhost"):
        run_script(path, [], chosen, device_names=devices)


def test_a_script_without_sessions_and_a_script_that_fails_are_refused(
    program: tuple[Path, PlacementFile], script: Write
) -> None:
    _, chosen = program
    with pytest.raises(BadInputError, match="did not train"):
        run_script(script("print(1)"), [], chosen)
    idle = "import tensorflow as tf\nwith tf.Graph().as_default():\n"
    idle += "    print(tf.compat.v1.Session().run(tf.constant(1)))"
    with pytest.raises(BadInputError, match="no session of the script ran a training step"):
        run_script(script(idle), [], chosen)
    with pytest.raises(BadInputError, match=r"failed in line 2: ValueError: no data"):
        run_script(script("x = 1\nraise ValueError('no data')"), [], chosen)


EXPORTING = """
import sys
import tensorflow as tf
tf1 = tf.compat.v1

with tf.Graph().as_default() as graph:
    x = tf1.placeholder(tf.float32, [8, 3], name="x")
    v = tf1.get_variable("v", [3, 3], initializer=tf1.random_normal_initializer(seed=1))
    w = tf1.get_variable("w", [3, 3], initializer=tf1.random_normal_initializer(seed=2))
    loss = tf.reduce_mean(tf.square(tf.tanh(x @ v) @ w), name="loss")
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    twice = 2.0 * loss
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        session.run([train, loss], {x: [[1.0, 2.0, 3.0]] * 8})
        session.run([train, twice], {x: [[1.0, 2.0, 3.0]] * 8})
        session.run(twice, {x: [[1.0, 2.0, 3.0]] * 8})
        tf1.train.Saver().save(session, sys.argv[1])
"""


@pytest.mark.parametrize("is_split", [False, True], ids=["whole ops", "split ops"])
def test_what_a_program_exports_is_its_graph_as_built(
    is_split: bool, script: Write, tmp_path: Path
) -> None:
    """Another program has no such devices, and its runs would execute more by the order."""
    path = script(EXPORTING)
    meta = capture(path, [str(tmp_path / "captured")]).meta
    profile = api.profile(meta, "v100x2-nvlink", parts=(2,))
    parallel = api.placement(profile, api.solve(profile, "data-parallel"))
    chosen = parallel if is_split else round_robin_placement(read_step(meta))
    run_program(path, [str(tmp_path / "alone")])
    cpus = {"CPU:0": "/device:CPU:0", "GPU:0": "/device:CPU:0", "GPU:1": "/device:CPU:1"}
    devices = cpus if is_split else None
    report = run_script(path, [str(tmp_path / "placed")], chosen, "", devices)
    assert len(report.step_us) == 2
    assert report.changes.num_control_edges > 0
    alone, placed = (
        {node.name: (list(node.input), node.device, node.attr.get("_class")) for node in nodes}
        for nodes in (
            read_meta_graph(tmp_path / f"{name}.meta").graph_def.node
            for name in ("alone", "placed")
        )
    )
    assert placed == alone
