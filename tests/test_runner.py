"""The runner: a model for one device is placed, trained, saved and restored."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from two_cpus import two_cpus

from pesto_cli import api
from pesto_cli.api.runner import Runner, _spec
from pesto_cli.data.machine import CommModel
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.files import CommFit
from pesto_cli.graphdef.fetches import fetch_names, init_names
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.tuning.tuned import Ended

SCRIPT = """
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1

def build():
    rows = tf1.placeholder(tf.float32, [32, 16], name="rows")
    with tf1.variable_scope("layer"):
        weights = tf1.get_variable("weights", [16, 16], initializer=tf1.ones_initializer())
    loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(rows, weights)) - rows), name="loss")
    return {"train_op": tf1.train.AdamOptimizer(0.01).minimize(loss), "loss": loss}

def batches():
    return {"rows": np.random.default_rng(0).normal(size=(32, 16))}
"""
UNEVEN = """
import numpy as np

def batches():
    for rows in (32, 5, 32):
        yield {"rows": np.zeros((rows, 16))}
    raise ValueError("no more")
"""
COMM = [CommFit("CPU", "CPU", CommModel(120.0, 3e-4, wait_us=3000.0), signal_us=100)]
QUICK: dict[str, Any] = {"time_limit_s": 0.1, "comm": COMM}


@dataclass(frozen=True)
class Training:
    """A runner of `script`; start: a checkpoint of its initial state."""

    runner: Runner
    script: Path
    start: Path


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    folder = tmp_path_factory.mktemp("training")
    script, start = folder / "model.py", folder / "start"
    script.write_text(SCRIPT)
    with api.runner(f"{script}:build", two_cpus(), f"{script}:batches", **QUICK) as running:
        running.save(start)
        yield Training(running, script, start)


def losses_alone(script: Path, steps: int) -> list[float]:
    """The losses of the exported step in a plain session."""
    tf1 = tensorflow().compat.v1
    meta = api.export(f"{script}:build")
    rows = np.random.default_rng(0).normal(size=(32, 16))
    with tf1.Graph().as_default() as graph, tf1.Session() as session:
        tf1.train.import_meta_graph(meta)
        session.run(init_names(meta))
        fetches = [graph.as_graph_element(name) for name in fetch_names(meta)]
        return [float(session.run(fetches, {"rows:0": rows})[1]) for _ in range(steps)]


def test_a_model_trains_as_on_one_device(training: Training) -> None:
    training.runner.restore(training.start)
    times = training.runner.run(steps=4)
    assert times.us.shape == (1, 4)
    losses = [*times.losses, *training.runner.run(steps=2).losses]
    assert losses == pytest.approx(losses_alone(training.script, 6), rel=1e-5)
    assert losses[-1] < losses[0]


def test_a_checkpoint_has_the_state_at_which_it_was_saved(
    training: Training, tmp_path: Path
) -> None:
    running = training.runner
    running.restore(training.start)
    running.run(steps=3)
    running.save(tmp_path / "saved")
    names = {name for name, _ in tensorflow().train.list_variables(str(tmp_path / "saved"))}
    assert {"layer/weights", "layer/weights/Adam"} <= names
    losses = running.run(steps=2).losses
    running.restore(tmp_path / "saved")
    assert running.run(steps=2).losses == losses


def test_what_cannot_be_done_is_refused(training: Training, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"checkpoint '.*checkpoint' cannot be written"):
        training.runner.save(tmp_path / "checkpoint")
    with pytest.raises(BadInputError, match=r"checkpoint '.*nowhere' cannot be restored"):
        training.runner.restore(tmp_path / "nowhere")
    with pytest.raises(BadInputError, match="0 steps"):
        training.runner.run(steps=0)


def test_a_placement_can_be_used_again_without_measurements(
    training: Training, tmp_path: Path
) -> None:
    training.runner.report(tmp_path / "report.html")
    assert "<html" in (tmp_path / "report.html").read_text()
    path = tmp_path / "p.placement.json"
    api.save(path, training.runner.placement)
    with api.runner(f"{training.script}:build", two_cpus(), placement=path) as again:
        assert again.plan == training.runner.plan
        assert again.run(steps=1).losses
        with pytest.raises(BadInputError, match="was given a placement and has no profile"):
            again.report(tmp_path / "other.html")


def test_runners_on_one_cluster_train_models_of_their_own(training: Training) -> None:
    source, batches = f"{training.script}:build", f"{training.script}:batches"
    placed, cluster = training.runner.placement, two_cpus()
    with api.runner(source, cluster, batches, placement=placed) as first:
        with api.runner(source, cluster, batches, placement=placed) as second:
            losses = first.run(steps=3).losses
            assert second.run(steps=1).losses == losses[:1]
        with pytest.raises(BadInputError, match="the runner has ended"):
            second.run(steps=1)
        assert first.run(steps=1).losses[0] < losses[-1]


def test_a_batch_that_is_refused_does_not_end_the_feeds(training: Training, tmp_path: Path) -> None:
    script = tmp_path / "uneven.py"
    script.write_text(UNEVEN)
    source, placed = f"{training.script}:build", training.runner.placement
    with api.runner(source, two_cpus(), f"{script}:batches", placement=placed) as running:
        with pytest.raises(BadInputError, match=r"shape \[5,16\]"):
            running.run(steps=2)
        assert running.run(steps=1).losses
        with pytest.raises(BadInputError, match="ValueError: no more"):
            running.run(steps=1)
        with pytest.raises(BadInputError, match="failed in an earlier step"):
            running.run(steps=1)


def test_a_tuning_that_is_stopped_stops_the_runner(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, failure = f"{training.script}:build", EnvironmentFailedError("worker 1 has died")
    for ended, error, raised in (
        (Ended.INTERRUPTED, None, KeyboardInterrupt),
        (Ended.FAILED, failure, EnvironmentFailedError),
    ):
        found = SimpleNamespace(ended=ended, error=error)
        tune = partial(lambda found, *given, **named: found, found)
        monkeypatch.setattr(sys.modules[Runner.__module__], "tune", tune)
        with pytest.raises(raised), api.runner(source, two_cpus(), tuned=True):
            pass


def test_functions_at_the_top_of_a_file_are_sources() -> None:
    """Another process loads their file."""
    assert _spec("the source", two_cpus).endswith("two_cpus.py:two_cpus")
    with pytest.raises(
        BadInputError, match=r"the inputs: .* is not a function at the top of a file"
    ):
        _spec("the inputs", lambda: None)


def test_the_example_trains_both_models(tmp_path: Path) -> None:
    example = Path(__file__).parent.parent / "examples" / "train_runner.py"
    assert len([line for line in example.read_text().splitlines() if line.strip()]) <= 15
    done = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    losses = re.findall(r"(\w+)\.py: loss ([0-9.]+) to ([0-9.]+)", done.stdout)
    assert [name for name, *_ in losses] == ["train_keras", "two_towers"]
    assert all(float(last) < float(first) for _, first, last in losses)
    saved = {path.name for path in (tmp_path / "build").iterdir()}
    assert {"train_keras.index", "two_towers.index"} <= saved
