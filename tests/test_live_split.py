"""Unmodified v1 programs whose step is split: on two devices they compute the same as whole.

`make fuzz` tries ten times as many plans (PESTO_EXAMPLES).
"""

import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import Pesto, Write
from random_plans import propagated_plan, random_plan, specs_of
from test_apply_in_tensorflow import round_robin_placement

from pesto_cli import api
from pesto_cli.apply import ProgramReport, run_script
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.plan import Plan
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.files.placement import fingerprints
from pesto_cli.files.plan import PlacedParts
from pesto_cli.graphdef.programs.capture import capture
from pesto_cli.graphdef.programs.run import run_program
from pesto_cli.graphdef.read import read_step
from pesto_cli.runtime.spans import spans
from pesto_cli.runtime.verify import verified
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.expansion import expand
from pesto_cli.sharding.rules import alternatives
from pesto_cli.sharding.variables import choices_of, variable_decisions

EXAMPLES = int(os.environ.get("PESTO_EXAMPLES", "1"))
PROGRAM = Path(__file__).parent / "split_program.py"
DEVICES = {
    "CPU:0": "/device:CPU:0",
    "GPU:0": "/device:CPU:0",
    **dict.fromkeys(("CPU:1", "GPU:1"), "/device:CPU:1"),
}


def split_placement(
    path: Path, argv: Sequence[str] = (), fetches: Sequence[str] = ()
) -> PlacementFile:
    """Return a placement of a program's captured step, with its batch split over two devices."""
    profile = api.profile(capture(path, argv, fetches=fetches).meta, "v100x2-nvlink", parts=(2, 4))
    placed = api.placement(profile, api.solve(profile, "data-parallel"))
    assert placed.plan
    return placed


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> PlacementFile:
    """A placement of the program's step without the fetches of its hooks."""
    folder = tmp_path_factory.mktemp("captured")
    return split_placement(PROGRAM, [str(folder)], ["train", "loss:0"])


class Ran:
    """What the program printed and wrote. report: None if it ran without a placement."""

    def __init__(self, folder: Path, printed: str, report: ProgramReport | None) -> None:
        *self.steps, last = map(json.loads, printed.splitlines())
        self.calls: Sequence[float] = last["calls"]
        self.state: Mapping[str, Sequence[float]] = last["state"]
        self.folder, self.report = folder, report


def train(folder: Path, placed: PlacementFile | None = None, *argv: str, **options: Any) -> Ran:
    """Run the program with or without a placement."""
    arguments = [str(folder), *argv]
    with redirect_stdout(io.StringIO()) as printed:
        if placed is None:
            report = run_program(PROGRAM, arguments)
        else:
            report = run_script(PROGRAM, arguments, placed, "", DEVICES, **options)
    return Ran(folder, printed.getvalue(), report)


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Ran]:
    """Two runs of the program without a placement; the second continues the first."""
    folder = tmp_path_factory.mktemp("whole")
    return train(folder), train(folder)


def check_equal(first: Ran, second: Ran) -> None:
    """Check that two runs computed the same in each step, to rounding."""
    assert len(first.steps) == len(second.steps) > 0
    for ours, others in zip(first.steps, second.steps, strict=True):
        assert ours["watch"] == pytest.approx(others["watch"], rel=1e-5, abs=1e-6)
        shown = ({**each, "watch": 0} for each in (ours, others))
        assert next(shown) == pytest.approx(next(shown), rel=1e-5)
    assert first.state.keys() == second.state.keys()
    for name, values in first.state.items():
        np.testing.assert_allclose(values, second.state[name], rtol=1e-4, atol=1e-5, err_msg=name)


def summaries(folder: Path) -> list[float]:
    """Return the summaries of the loss that a program wrote, by step."""
    from tensorflow.python.summary.summary_iterator import summary_iterator

    found = {}
    for path in sorted(folder.glob("events.*")):
        for event in summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == "watched":
                    found[event.step] = value.simple_value
    return [found[step] for step in sorted(found)]


def check_trace(report: ProgramReport, placed: PlacementFile) -> None:
    """Check that all parts ran on their devices, and ops in their order."""
    split = report.changes.split
    ran = spans(report.traced, split.graph_def)
    found = verified(split, placed, report.changes, ran)
    assert found.departures == ()
    assert found.num_ops > 30
    parts = {span.node: span.device for span in ran if ".part_" in span.node}
    planned = [name for name in placed.names if name.endswith((".part_0", ".part_1"))]
    assert set(planned) <= parts.keys()
    assert {device[-5:] for device in parts.values()} == {"CPU:0", "CPU:1"}
    # Of the split ops, only what hooks fetch is merged.
    merged = {span.node for span in ran} & placed.plan.choices.keys() - {*placed.names}
    assert merged <= {"net/product", "net/logits"}


def test_a_program_with_hooks_savers_and_summaries_trains_as_with_whole_ops(
    placed: PlacementFile, tmp_path: Path
) -> None:
    whole, split = train(tmp_path / "whole"), train(tmp_path / "split", placed, trace=True)
    check_trace(split.report, placed)
    assert len(split.report.step_us) == 4
    check_equal(whole, split)
    # Each effect took place once in each step, on values of the same step.
    assert [step["runs"] for step in split.steps] == [1, 2, 3, 4]
    losses = [step["loss"] for step in split.steps]
    assert split.calls == losses
    assert summaries(split.folder) == pytest.approx(losses)
    assert summaries(whole.folder) == pytest.approx(losses, rel=1e-5)


def test_a_step_with_all_that_hooks_fetch_trains_as_with_whole_ops(
    whole_runs: tuple[Ran, Ran], tmp_path: Path
) -> None:
    placed = split_placement(PROGRAM, [str(tmp_path / "captured")])
    assert "PyFunc" in placed.names
    split = train(tmp_path / "split", placed, trace=True)
    check_trace(split.report, placed)
    check_equal(whole_runs[0], split)
    assert split.calls == [step["loss"] for step in split.steps]


@pytest.mark.parametrize("split_first", [True, False], ids=["split, then whole", "whole, split"])
def test_checkpoints_load_both_ways(
    split_first: bool, placed: PlacementFile, whole_runs: tuple[Ran, Ran], tmp_path: Path
) -> None:
    for turn in range(2):
        other = train(tmp_path / "other", placed if split_first == (turn == 0) else None)
    assert other.state["global_step"] == [8]
    check_equal(whole_runs[1], other)


def test_a_step_with_another_batch_size_runs_whole_with_a_warning(
    placed: PlacementFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = train(tmp_path / "whole", None, "--ragged")
    split = train(tmp_path / "split", placed, "--ragged")
    assert len(split.report.step_us) == 3
    words = "fed labels [5], rows [5, 6], but the parts of split ops take labels [8], rows [8, 6]"
    assert [words in text for text in caplog.messages if "with whole ops" in text] == [True]
    for ours, others in zip(whole.steps[:2], split.steps[:2], strict=True):
        assert ours["loss"] == pytest.approx(others["loss"], rel=1e-5)
    assert [step["runs"] for step in split.steps] == [1, 2, 3, 4]


def test_a_program_that_only_feeds_other_sizes_is_refused(
    placed: PlacementFile, tmp_path: Path
) -> None:
    with pytest.raises(BadInputError, match=r"is fed labels \[6\], rows \[6, 6\].*other sizes"):
        train(tmp_path, placed, "--batch", "6")


@pytest.mark.parametrize("variables", ["split", "mirrored"])
def test_a_program_trains_with_variables_in_pieces_or_copies(
    variables: Any, whole_runs: tuple[Ran, Ran], tmp_path: Path
) -> None:
    """Its evaluations, hooks and checkpoints see whole variables; checkpoints load both ways."""
    step = capture(PROGRAM, [str(tmp_path / "captured")], fetches=["train", "loss:0"]).meta
    plan = split_variables(step, {"split": "variable 1", "mirrored": "mirrored"}[variables])
    placed = placed_by_plan(step, plan)
    assert "net/first" in placed.plan.choices
    for turn in range(2):
        other = train(tmp_path / "other", placed if turn == 0 else None)
        again = train(tmp_path / "again", placed if turn == 1 else None)
    assert again.report is not None
    assert len(again.report.step_us) == 4
    check_equal(whole_runs[1], other)
    check_equal(whole_runs[1], again)


def split_variables(meta: Any, alternative: str) -> Plan:
    """Return a plan that splits all variables of a step that can be, in two."""
    step = read_step(meta)
    graph, specs, decided = step.graph, specs_of(step), dict[int, Decision]()
    for op, kind in enumerate(graph.types):
        spec = specs[op]
        if kind == "VarHandleOp" and spec is not None and op not in decided:
            size = next((way.size for way in alternatives(spec) if way.name == alternative), 0)
            sizes = (1, size - 1) if size else (1, 1)
            decided |= variable_decisions(graph, specs, op, alternative, sizes) or {}
    return Plan(choices_of(graph, decided))


def test_on_two_workers_by_command(pesto: Pesto, tmp_path: Path) -> None:
    graph, profile, placement = (tmp_path / name for name in ("g.meta", "g.json", "p.json"))
    names = ("--fetch", "train", "--fetch", "loss:0")
    done = pesto("export", PROGRAM, "--capture", *names, "-o", graph, "--", tmp_path / "c")
    assert done.code == 0, done.err
    machine = ("-m", "local-workers:2")
    options = ("--source", "run", "--parts", 2, "--steps", 3, "--warm-up", 1)
    assert pesto("profile", graph, *machine, *options, "-o", profile).code == 0
    assert pesto("solve", profile, "--strategy", "ev-ar", "-o", placement).code == 0
    run = ("run", PROGRAM, *machine, "--placement", placement, "--verify", "--json")
    done = pesto(*run, "--", tmp_path / "trained", "--remote")
    assert done.code == 0, done.err
    (record,) = json.loads(done.out[done.out.index("[") :])
    assert record["verification"]["departures"] == []
    assert record["verification"]["num_ops"] > 30
    assert min(record["busy_us"].values()) > 0


MODEL = """
import sys
import split_models
import training_graphs
from split_training import random_feeds
from pesto_cli.graphdef.tensorflow import tensorflow
tf = tensorflow()
tf1 = tf.compat.v1

def show(values):
    print(*(number for value in values if value is not None for number in value.ravel()))

with tf.Graph().as_default() as graph:
    tf1.set_random_seed(5)
    module = training_graphs if sys.argv[1] == "embedding" else split_models
    fetches = getattr(module, sys.argv[1])(tf)
    init = tf1.global_variables_initializer()
    feeds = random_feeds(graph)
    with tf1.Session() as session:
        session.run(init)
        for _ in range(3):
            show(session.run(fetches, feeds))
            show(session.run(tf1.trainable_variables()))
"""


class Model(NamedTuple):
    """A program for a model, its captured step, and what it prints with whole ops."""

    path: Path
    name: str
    meta: Any
    printed: str


@pytest.fixture(
    scope="module", params=["gpt", "batch_norm", "loops", "embedding", "compiled_calls"]
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path, name = tmp_path_factory.mktemp("model") / "model.py", request.param
    path.write_text(MODEL)
    meta = capture(path, [name]).meta
    with redirect_stdout(io.StringIO()) as printed:
        run_program(path, [name])
    return Model(path, name, meta, printed.getvalue())


@pytest.mark.parametrize("plan", [random_plan, propagated_plan])
@pytest.mark.parametrize("seed", range(1, 1 + EXAMPLES))
def test_any_plan_computes_the_same(
    seed: int, plan: Any, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    step = read_step(model.meta)
    placed = placed_by_plan(model.meta, plan(step.graph, specs_of(step), seed=seed))
    capsys.readouterr()
    report = run_script(model.path, [model.name], placed, trace=True)
    whole, split = model.printed.splitlines(), capsys.readouterr().out.splitlines()
    assert len(whole) == len(split) == 6
    for first, second in zip(whole, split, strict=True):
        pair = (np.array(line.split(), np.float64) for line in (first, second))
        np.testing.assert_allclose(*pair, rtol=1e-3, atol=1e-3)
    meta = report.changes.changed_graph(report.meta)
    ran = spans(report.traced, meta.graph_def)
    assert verified(meta, placed, report.changes, ran).departures == ()


def placed_by_plan(meta: Any, plan: Plan) -> PlacementFile:
    """Return a placement of parts, dealt to two CPU devices."""
    step = read_step(meta)
    dealt = round_robin_placement(read_step(split_graph(meta, plan)))
    ops = expand(step.graph, specs_of(step), plan).ops
    row_of = {name: row for row, name in enumerate(ops.names)}
    rows = [row_of[name] for name in dealt.names]
    origin, part = ([column[row] for row in rows] for column in (ops.origin, ops.part))
    return replace(
        dealt,
        plan=plan,
        parts=PlacedParts(step.graph.names, origin, part) if plan else None,
        fingerprint=fingerprints(step.graph),
        provenance={"graph_hash": step.graph_hash},
    )


DATA_SET = """
import tensorflow as tf
tf1 = tf.compat.v1

with tf.Graph().as_default():
    data = tf.data.Dataset.range(32).map(lambda i: tf.fill([4], tf.cast(i % 5, tf.float32)))
    rows = tf1.data.make_one_shot_iterator(data.batch(8, drop_remainder={drop})).get_next()
    w = tf1.get_variable("w", [4, 4], initializer=tf1.random_normal_initializer(seed=1))
    loss = tf.reduce_mean(tf.square(tf.matmul(rows, w, name="y") - 1.0), name="loss")
    step = tf1.train.get_or_create_global_step()
    train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
    tf1.summary.scalar("first", rows[0, 0])
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        for _ in range(4):
            print(*session.run([loss, train, rows[0, 0]])[::2])
"""


def test_a_data_set_gives_each_batch_once(
    script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(DATA_SET.format(drop=True))
    placed = split_placement(path, fetches=["GradientDescent", "loss:0"])
    assert "y" in placed.plan.choices
    run_program(path, [])
    whole = [[*map(float, line.split())] for line in capsys.readouterr().out.splitlines()]
    run_script(path, [], placed, "", DEVICES)
    split = [[*map(float, line.split())] for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(whole, split, rtol=1e-5)
    assert [row[1] for row in split] == [0, 3, 1, 4]


FED_AT_TIMES = """
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1

with tf.Graph().as_default():
    data = tf.data.Dataset.range(8).map(lambda i: (tf.fill([6, 4], i), tf.fill([6], i)))
    given, numbers = tf1.data.make_one_shot_iterator(data).get_next()
    rows = tf.identity(tf.cast(given, tf.float32) / 8, name="rows")
    w = tf1.get_variable("w", [4, 4], initializer=tf1.random_normal_initializer(seed=1))
    values = tf.tanh(tf.matmul(rows, w)) * tf.cast(numbers, tf.float32)[:, None]
    loss = tf.reduce_mean(tf.square(values - 1.0), name="loss")
    train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss)
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        for number in range(6):
            feeds = {rows: np.full([6, 4], 0.5)} if number % 2 == 0 else None
            print(*session.run([loss, numbers[0], train], feeds)[:2])
"""


def test_a_step_that_does_not_feed_what_another_feeds_runs_whole(
    script: Write, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = script(FED_AT_TIMES)
    placed = split_placement(path, fetches=["GradientDescent", "loss:0"])
    run_program(path, [])
    whole = [[*map(float, line.split())] for line in capsys.readouterr().out.splitlines()]
    report = run_script(path, [], placed, "", DEVICES)
    split = [[*map(float, line.split())] for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(whole, split, rtol=1e-5)
    assert [row[1] for row in split] == [0, 1, 2, 3, 4, 5]
    assert len(report.step_us) == 3
    assert "with whole ops: it was fed nothing, but" in caplog.text


def test_a_data_set_with_batches_of_open_size_is_refused(script: Write) -> None:
    path = script(DATA_SET.format(drop=False))
    placed = split_placement(path, fetches=["GradientDescent", "loss:0"])
    with pytest.raises(BadInputError, match=r"'IteratorGetNext'.* are open.*drop_remainder=True"):
        run_script(path, [], placed, "", DEVICES)


TAKES_VARIABLES = """
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1

with tf.Graph().as_default():
    rows = tf1.placeholder(tf.float32, [8, 4], name="rows")
    normal = tf1.random_normal_initializer(seed=1)
    w = tf1.get_variable("w", [4, 6], initializer=normal, use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(rows, w, name="y") - 1.0), name="loss")
    train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    with tf.control_dependencies([train]):
        after = tf.reduce_sum(w.read_value())
        halved = w.assign(w.read_value() * 0.5).op
        counted = tf1.get_variable("count", [], use_resource=True).assign_add(1.0)
    with tf.control_dependencies([counted]):
        late = tf.reduce_sum(w.read_value())
    reset = w.assign(tf.ones([4, 6])).op
    feeds = {{rows: np.linspace(-1, 1, 32).reshape(8, 4)}}
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        for number in range(3):
            print(*session.run([loss, train, {fetched} if number else loss], feeds)[::2])
            print(*session.run(w).ravel())
            if number == 1:
                session.run(reset)
"""


@pytest.mark.parametrize("way", ["variable 0", "variable 1", "mirrored"])
@pytest.mark.parametrize("fetched", ["loss", "after", "late", "halved"])
def test_runs_around_a_step_take_and_write_variables_in_pieces_or_copies(
    fetched: str, way: str, script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the update, a step also reads a variable (`after`, `late`) or writes it (`halved`)."""
    path = script(TAKES_VARIABLES.format(fetched=fetched))
    meta = capture(path, fetches=["Momentum", "loss:0"]).meta
    placed = placed_by_plan(meta, split_variables(meta, way))
    report, num_lines = check_prints_the_same(path, placed, capsys)
    assert len(report.step_us) == (1 if fetched == "halved" else 3)
    assert num_lines == 6


def check_prints_the_same(
    path: Path, placed: PlacementFile, capsys: pytest.CaptureFixture[str]
) -> tuple[ProgramReport, int]:
    """Check that a script prints the same numbers with a placement; return its number of lines."""
    run_program(path, [])
    whole = capsys.readouterr().out.splitlines()
    report = run_script(path, [], placed)
    split = capsys.readouterr().out.splitlines()
    assert len(whole) == len(split) > 0
    for first, second in zip(whole, split, strict=True):
        numbers = (
            [float(word) for word in line.split() if word != "None"] for line in (first, second)
        )
        np.testing.assert_allclose(*numbers, rtol=1e-5, atol=1e-6)
    return report, len(whole)


def test_a_program_whose_steps_all_write_a_split_variable_is_refused(script: Write) -> None:
    text = TAKES_VARIABLES.format(fetched="halved").replace("if number else loss", "")
    path = script(text)
    meta = capture(path, fetches=["Momentum", "loss:0"]).meta
    placed = placed_by_plan(meta, split_variables(meta, "variable 1"))
    words = (
        r"all steps ran with whole ops.*takes the whole value of variable 'w', which is split, in"
    )
    with pytest.raises(BadInputError, match=words):
        run_script(path, [], placed)


THREADS = """
import threading
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1

with tf.Graph().as_default() as graph:
    rows = tf1.placeholder(tf.float32, [8, 4], name="rows")
    w = tf1.get_variable("w", [4, 6], initializer=tf1.ones_initializer(), use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(rows, w, name="y") - 1.0), name="loss")
    train = tf1.train.MomentumOptimizer(0.0, 0.9).minimize(loss)  # a step leaves w as it is
    more = w.assign_add(tf.ones([4, 6])).op
    feeds = {rows: np.ones([8, 4])}

    def rounds(fetches, feeds=None):
        for _ in range(60):
            together.wait()
            session.run(fetches, feeds)

    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        session.run([loss, train], feeds)
        together = threading.Barrier(3)
        threads = [threading.Thread(target=rounds, args=[fetch]) for fetch in (more, w)]
        for thread in threads:
            thread.start()
        rounds([loss, train], feeds)
        for thread in threads:
            thread.join()
        print(session.run(w)[0, 0], session.run(loss, feeds), session.run([loss, train], feeds)[0])
"""


@pytest.mark.parametrize("way", ["variable 1", "mirrored"])
def test_threads_lose_no_writes(
    way: str, script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(THREADS)
    meta = capture(path, fetches=["Momentum", "loss:0"]).meta
    report = run_script(path, [], placed_by_plan(meta, split_variables(meta, way)))
    *_, line = capsys.readouterr().out.splitlines()
    value, beside, in_step = map(float, line.split())
    assert len(report.step_us) == 62
    assert value == 61
    assert beside == in_step == pytest.approx((4 * 61 - 1) ** 2)


OTHER_HANDLES = """
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1

def imported():
    tf1.train.import_meta_graph(exported, import_scope="again")
    return next(v for v in tf1.global_variables() if v.name == "again/w:0")

with tf.Graph().as_default() as graph:
    rows = tf1.placeholder(tf.float32, [8, 4], name="rows")
    normal = tf1.random_normal_initializer(seed=1)
    w = tf1.get_variable("w", [4, 6], initializer=normal, use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(rows, w, name="y") - 1.0), name="loss")
    train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    init = tf1.global_variables_initializer()
    exported = tf1.train.export_meta_graph(clear_devices=True)
    other = imported() if {first} else None
    feeds = {{rows: np.linspace(-1, 1, 32).reshape(8, 4)}}
    with tf1.Session() as session:
        session.run(init)
        print(*session.run([loss, train], feeds)[:1])
        other = imported() if other is None else other
        print(*session.run(other).ravel())
        session.run(other.assign(tf.ones([4, 6])).op)
        print(*session.run([loss, train], feeds)[:1], *session.run(w).ravel())
"""


@pytest.mark.parametrize("way", ["variable 1", "mirrored"])
@pytest.mark.parametrize("first", [True, False], ids=["imported before", "imported after"])
def test_a_variable_may_have_other_handles(
    first: bool, way: str, script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """If they exist when the graph is captured, the variable stays whole."""
    path = script(OTHER_HANDLES.format(first=first))
    meta = capture(path, fetches=["Momentum", "loss:0"]).meta
    placed = placed_by_plan(meta, split_variables(meta, way))
    assert ("w" in placed.plan.choices) is not first
    check_prints_the_same(path, placed, capsys)


BUILT_TWICE = """
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1

for is_trained in (False, True):
    with tf.Graph().as_default(), tf1.Session() as session:
        rows = tf1.placeholder(tf.float32, [8, 4], name="rows")
        ones = tf1.ones_initializer()
        matrix = tf1.get_variable("matrix", [4, 4], initializer=ones, use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.matmul(rows, matrix)), name="loss")
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        session.run(tf1.global_variables_initializer())
        feeds = {rows: np.ones((8, 4))}
        for _ in range(3):
            print(session.run([train, loss] if is_trained else [loss], feeds)[-1])
"""


def test_the_report_is_about_the_graph_that_ran_steps(
    script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(BUILT_TWICE)
    placed = split_placement(path)
    capsys.readouterr()
    run_program(path, ())
    expected = capsys.readouterr().out
    report = run_script(path, [], placed, "", DEVICES)
    assert capsys.readouterr().out == expected
    assert len(report.step_us) == 3
    assert any(".part_" in name for name in report.changes.device)
