"""A script's training steps run under one placement after the other, and compute the same."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto, Write
from test_apply_in_tensorflow import round_robin_placement
from test_live_split import PROGRAM, placed_by_plan, split_variables
from two_cpus import NAMES, two_cpus

from pesto_cli import api
from pesto_cli.cli import live_tuning as cli_live_tuning
from pesto_cli.cluster import Connection
from pesto_cli.data.machine import CommModel
from pesto_cli.errors import BadInputError
from pesto_cli.files import CommFit, PlacementFile
from pesto_cli.graphdef.programs.capture import capture
from pesto_cli.graphdef.programs.run import run_program
from pesto_cli.graphdef.read import read_step
from pesto_cli.runtime import live_training
from pesto_cli.runtime.interleaved import Turns
from pesto_cli.runtime.live_training import LiveTraining, ScriptEndedError
from pesto_cli.tuning.budget import StepBudget

Train = Callable[..., LiveTraining]
EXAMPLE = Path(__file__).parent.parent / "examples" / "train_v1.py"
TURNS = Turns(4, 1, 1, 2)
DEVICES = {name: f"/device:{name}" for name in NAMES}
HERE = Connection("", DEVICES | {"GPU:0": "/device:CPU:0", "GPU:1": "/device:CPU:1"})


def whole_and_single(path: Path, argv: Sequence[str] = ()) -> list[PlacementFile]:
    """Return two placements of a script's step: on both devices by turns, and on the second."""
    step = read_step(capture(path, argv).meta)
    both = round_robin_placement(step)
    order = [step.graph.names[op] for op in step.graph.topological_order.tolist()]
    ranks = [order.index(name) for name in both.names]
    return [both, replace(both, device=[1] * len(ranks), rank=ranks)]


def split_by_batch(path: Path, argv: Sequence[str] = ()) -> PlacementFile:
    """Return a placement of a script's step whose batch is split over two devices."""
    meta = capture(path, argv, fetches=["train", "loss:0"]).meta
    profile = api.profile(meta, "v100x2-nvlink", parts=(2,))
    placed = api.placement(profile, api.solve(profile, "data-parallel"))
    assert placed.plan
    return placed


def with_variables_in_pieces(path: Path, argv: Sequence[str] = ()) -> PlacementFile:
    """Return a placement of a script's step on two devices that splits its variables."""
    meta = capture(path, argv, fetches=["train", "loss:0"]).meta
    placed = placed_by_plan(meta, split_variables(meta, "variable 1"))
    assert placed.plan
    return placed


@pytest.fixture
def train() -> Iterator[Train]:
    """A function that starts a script, which ends with the test."""
    started: list[LiveTraining] = []

    def start(path: Path, argv: Sequence[str] = ()) -> LiveTraining:
        started.append(LiveTraining(HERE, path, argv))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def printed_alone(path: Path, argv: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    run_program(path, argv)
    return capsys.readouterr().out


@pytest.mark.parametrize("monitored", [[], ["--monitored"]], ids=["Session", "Monitored"])
def test_a_program_trains_identically_while_its_placement_changes(
    train: Train, monitored: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--steps", "16", *monitored]
    placements = whole_and_single(EXAMPLE, argv)
    expected = printed_alone(EXAMPLE, argv, capsys)
    training = train(EXAMPLE, argv)
    runs = training.steps(placements, TURNS)
    rest = training.finish(placements[1])
    assert capsys.readouterr().out == expected
    assert [run.times.us.shape for run in runs] == [(2, 2), (2, 2)]
    assert [run.verification.departures for run in runs] == [(), ()]
    assert runs[1].times.busy_us.keys() == {"CPU:1"}
    assert rest is not None
    assert rest.times.us.size == 16 - 2 * TURNS.num_all - 1
    assert rest.verification.departures == ()


def test_hooks_savers_and_summaries_see_one_training(
    train: Train, script: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(PROGRAM.read_text().replace("default(0.8", "default(1.0"))  # no dropout
    whole = json_lines(printed_alone(path, [str(tmp_path / "alone"), "--steps", "18"], capsys))
    captured = [str(tmp_path / "captured")]
    placements = [
        split_by_batch(path, captured),
        with_variables_in_pieces(path, captured),
        whole_and_single(path, captured)[0],
    ]
    training = train(path, [str(tmp_path / "tuned"), "--steps", "18"])
    training.steps(placements[:1], TURNS)
    training.steps(placements, Turns(2, 0, 1, 1))
    training.finish(placements[0])
    tuned = json_lines(capsys.readouterr().out)
    assert len(tuned) == 19
    for ours, others in zip(tuned[:-1], whole[:-1], strict=True):
        assert ours.pop("watch") == pytest.approx(others.pop("watch"), rel=1e-4)
        assert ours == pytest.approx(others, rel=1e-4)
    for name, values in whole[-1]["state"].items():
        np.testing.assert_allclose(
            tuned[-1]["state"][name], values, rtol=1e-3, atol=1e-5, err_msg=name
        )
    assert (tmp_path / "tuned" / "model.ckpt-18.index").exists()


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


# Data sets of both kinds, a table, and a variable that is created after some steps.
STATES = """
import tensorflow as tf
tf1 = tf.compat.v1

with tf.Graph().as_default():
    rows = tf.data.Dataset.range(40).shuffle(8, seed=1).map(lambda i: tf.cast(i, tf.float32))
    rows = tf1.data.make_initializable_iterator(rows.batch(2).prefetch(1))
    more = tf1.data.make_one_shot_iterator(tf.data.Dataset.range(100)).get_next()
    keys, values = tf.constant(["a", "b"]), tf.constant([0.5, 0.25])
    known = tf.lookup.KeyValueTensorInitializer(keys, values)
    table = tf.lookup.StaticHashTable(known, 0.0)
    w = tf1.get_variable("w", [2], initializer=tf1.ones_initializer(), use_resource=False)
    v = tf1.get_variable("v", [2], initializer=tf1.ones_initializer(), use_resource=True)
    weight = table.lookup(tf.constant("b")) * tf.cast(more, tf.float32)
    loss = tf.reduce_sum(tf.square(w * v - rows.get_next() * 0.01)) * weight
    train = tf1.train.MomentumOptimizer(0.001, 0.9).minimize(loss)
    unused = tf1.get_variable("unused", [], initializer=tf1.ones_initializer())
    init = [v.initializer for v in tf1.global_variables() if v is not unused]
    with tf1.Session() as session:
        session.run([init, rows.initializer, tf1.tables_initializer()])
        for number in range(12):
            print(session.run([train, loss])[1].tobytes().hex())
            if number == 5:
                late = tf1.get_variable("late", [], initializer=tf1.constant_initializer(2.0))
                late = tf.reduce_sum(w) * late
                session.run(tf1.get_collection("variables")[-1].initializer)
            if number > 5:
                print(session.run(late))
        print(session.run(tf1.report_uninitialized_variables()))
"""


def test_data_sets_tables_and_variables_go_on_where_they_were(
    train: Train, script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(STATES)
    placements = whole_and_single(path)
    expected = printed_alone(path, [], capsys)
    training = train(path)
    training.steps(placements, Turns(2, 1, 1, 1))
    training.finish(placements[0])
    assert capsys.readouterr().out == expected
    assert expected.endswith("[b'unused']\n")


QUEUE = """
import tensorflow as tf
tf1 = tf.compat.v1
with tf.Graph().as_default():
    queue = tf1.FIFOQueue(10, tf.float32, [[]])
    w = tf1.get_variable("w", [])
    loss = tf.square(w - queue.dequeue())
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
    with tf1.Session() as session:
        session.run([tf1.global_variables_initializer(), queue.enqueue_many([[1.0] * 5])])
        session.run([train, loss])
"""
PYTHON_DATA = """
import tensorflow as tf
tf1 = tf.compat.v1
with tf.Graph().as_default():
    data = tf.data.Dataset.from_generator(lambda: iter(range(50)), tf.int64, [])
    data = tf1.data.make_initializable_iterator(data)
    rows = data.get_next()
    w = tf1.get_variable("w", [])
    loss = tf.square(w - tf.cast(tf.reshape(rows, []), tf.float32), name="loss")
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
    with tf1.Session() as session:
        session.run([tf1.global_variables_initializer(), data.initializer])
        for _ in range(9):
            session.run([train, loss])
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (QUEUE, "a FIFOQueueV2, whose state cannot be carried"),
        (PYTHON_DATA, "position of data set iterator 'IteratorV2' cannot be saved"),
    ],
)
def test_state_that_cannot_be_carried_is_refused(
    text: str, message: str, train: Train, script: Write
) -> None:
    path = script(text)
    placements = whole_and_single(EXAMPLE if "FIFOQueue" in text else path)
    with pytest.raises(BadInputError, match=message):
        train(path).steps(placements, TURNS)


def test_a_step_that_takes_data_from_a_queue_is_refused_before_it_runs(script: Write) -> None:
    with pytest.raises(BadInputError, match="takes data from a queue, by 'fifo_queue_Dequeue'"):
        api.tune_script(script(QUEUE), [], two_cpus(), steps=200)


def test_a_placement_that_cannot_run_is_left_and_the_training_goes_on(
    train: Train,
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["--steps", "8"]
    good, _ = whole_and_single(EXAMPLE, argv)
    expected = printed_alone(EXAMPLE, argv, capsys)
    training = train(EXAMPLE, argv)
    bad = replace(good, devices=("CPU:0", "CPU:7"))
    for placements in ([bad], [good, bad]):
        with pytest.raises(BadInputError, match="CPU:7"):
            training.steps(placements, Turns(2, 0, 1, 1))
    training.steps([good], Turns(2, 0, 1, 1))
    training.finish(good)
    assert capsys.readouterr().out == expected


def test_the_end_of_the_script_ends_the_tuning(train: Train) -> None:
    argv = ["--steps", "3"]
    placements = whole_and_single(EXAMPLE, argv)
    training = train(EXAMPLE, argv)
    for _ in range(2):
        with pytest.raises(ScriptEndedError, match=r"train_v1.py: .* after 3 training steps"):
            training.steps(placements, TURNS)
    assert training.finish(placements[0]) is None


@pytest.mark.parametrize("num_steps", [StepBudget.fewest, 150, 1000])
def test_a_number_of_steps_is_not_exceeded(num_steps: int) -> None:
    budget = StepBudget(num_steps, 1.0)
    used, cost = 0.0, 0.0
    counts = iter([6, *[4] * 50])
    while not used or budget.has_room(cost):
        number = next(counts)
        budget.count(budget.turns([1.0] * number).num_all * number)
        used, cost = budget.spent, budget.spent - used
    final = budget.turns([1.0] * 6, is_final=True)
    budget.count(final.num_all * 6)
    assert final.num_steps % 2 == 0
    assert budget.spent <= num_steps


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices of this process, in place of workers."""
    monkeypatch.setattr(cli_live_tuning, "connected", lambda *given: nullcontext(two_cpus()))
    comm = [CommFit("CPU", "CPU", CommModel(120.0, 3e-4, wait_us=3000.0), signal_us=100)]
    train = api.tune_script
    monkeypatch.setattr(
        api, "tune_script", lambda *given, **named: train(*given, **named, comm=comm, parts=())
    )


TUNE = ("-m", "local-workers:2", "--tune", StepBudget.fewest, "--time-limit", 0.1)


@pytest.mark.usefixtures("in_process")
def test_a_script_is_tuned_by_command_and_its_losses_do_not_jump(
    pesto: Pesto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, placement = ["--steps", "80"], tmp_path / "p.json"
    expected = losses(printed_alone(EXAMPLE, argv, capsys))
    done = pesto("run", EXAMPLE, *TUNE, "-o", placement, "--verify", "--", *argv)
    assert done.code == 0, done.err
    assert losses(done.out) == pytest.approx(expected, rel=1e-3)
    assert "Answer: " in done.out
    assert "final round: " in done.out
    assert "after the tuning" in done.out
    assert "nodes on their devices" in done.err
    assert api.read_placement(placement).predicted["measured_us"] > 0


def losses(text: str) -> list[float]:
    lines = [line for line in text.splitlines() if line.startswith("step ")]
    return [float.fromhex(line.partition("loss ")[2]) for line in lines]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("num_steps", [5, 60])
def test_a_script_that_ends_too_early_keeps_the_best_placement_so_far(
    num_steps: int, pesto: Pesto, tmp_path: Path
) -> None:
    placement = tmp_path / "p.json"
    done = pesto("run", EXAMPLE, *TUNE, "-o", placement, "--", "--steps", num_steps)
    assert done.code == 2
    assert f"the script ended after {num_steps} training steps" in done.err
    assert placement.exists() is (num_steps == 60)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["graph.meta", "--tune", "99"], "--tune is for a script .* pesto tune"),
        ([EXAMPLE, "--tune", "99", "--placement", "p.json"], "--placement does not go with it"),
        ([EXAMPLE, "--tune", "99", "--compare", "single"], "--compare does not go with a script"),
        ([EXAMPLE, "-o", "p.json", "--placement", "p.json"], "--output is for .* add --tune"),
        ([EXAMPLE], "needs --placement PLACEMENT or --tune STEPS"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    argv: Sequence[object], message: str, pesto: Pesto
) -> None:
    done = pesto("run", *argv, "-m", "local-workers:2")
    assert done.code == 2
    assert re.search(message, done.err)


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(BadInputError, match="71 steps for a tuning; at least 72"):
        api.tune_script(EXAMPLE, [], two_cpus(), steps=StepBudget.fewest - 1)


def test_the_functions_for_the_client_process_share_one_training() -> None:
    connection = replace(HERE, kept={})
    argv = ["--steps", "3"]
    placements = whole_and_single(EXAMPLE, argv)
    live_training.begin(connection, EXAMPLE, argv)
    live_training.steps(connection, placements[:1], Turns(1, 0, 1, 1))
    rest = live_training.finish(connection, placements[0])
    assert rest is not None
    assert rest.times.us.size == 1
