"""Unmodified Keras programs: captured at `fit`, and trained on two workers with split ops."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto

from pesto_cli import api
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.fetches import feed_names, fetch_names
from pesto_cli.graphdef.programs.capture import Captured, capture
from pesto_cli.graphdef.programs.run import run_program

PROGRAM = Path(__file__).parent / "keras_program.py"
WORKERS = ("worker:0/CPU:0", "worker:1/CPU:0")
COMM = CommModel(latency_us=100.0, us_per_byte=1e-3)
MACHINE = Machine(
    tuple(Device(name, "CPU", 2**33) for name in WORKERS),
    (Link(*WORKERS, COMM), Link(*WORKERS[::-1], COMM)),
    kinds={"CPU": PRESETS["v100x2-nvlink"].kinds["CPU"]},
)


def results(folder: Path) -> Any:
    return json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return tmp_path_factory.mktemp


@pytest.fixture(scope="module")
def weights(folder: Callable[[str], Path]) -> Path:
    """Weights that the program has written without pesto."""
    path = folder("first")
    run_program(PROGRAM, [str(path)])
    return path / "trained.weights.h5"


@pytest.fixture(scope="module")
def captured(folder: Callable[[str], Path], weights: Path) -> Captured:
    return capture(PROGRAM, [str(folder("captured")), "--weights", str(weights)])


@pytest.fixture(scope="module")
def placement(captured: Captured, folder: Callable[[str], Path]) -> Path:
    """A placement that splits the batch over two workers."""
    profile = api.profile(captured.meta, MACHINE, parts=(2,))
    placed = api.placement(profile, api.solve(profile, "data-parallel"))
    assert len(placed.plan.choices) > 30
    path = folder("split") / "placement.json"
    api.write_placement(path, placed)
    return path


def test_the_step_is_captured_at_the_first_batch(
    captured: Captured, folder: Callable[[str], Path]
) -> None:
    assert [value.shape for value in captured.feeds.values()] == [(32, 16), (32,)]
    assert list(feed_names(captured.meta)) == list(captured.feeds)
    assert fetch_names(captured.meta)[0] == "train_op"
    path = folder("ended")
    capture(PROGRAM, [str(path)])
    assert not list(path.iterdir())


def test_it_trains_split_on_two_workers_as_without_pesto(
    pesto: Pesto, weights: Path, placement: Path, tmp_path: Path, folder: Callable[[str], Path]
) -> None:
    alone = folder("alone")
    run_program(PROGRAM, [str(alone), "--weights", str(weights), "--twice"])
    run = ("run", PROGRAM, "-m", "local-workers:2", "--placement", placement)
    done = pesto(*run, "--json", "--", tmp_path, "--weights", weights, "--twice")
    assert done.code == 0, done.err
    for name, expected in results(alone).items():
        found = results(tmp_path)[name]
        if isinstance(expected, dict):
            found, expected = list(found.values()), list(expected.values())
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)
    # Two of the three batches of an epoch have the size of the placement.
    (record,) = json.loads(done.out[done.out.index("[") :])
    assert np.size(record["steps_us"]) == 2
    assert "a batch of [6, 16], [6] without the placement, which is for [32, 16], [32]" in done.err
    # Then the model is compiled with another optimiser.
    assert "model 'sequential' trains without the placement, which is for the first" in done.err
    # Its weights load without pesto.
    again = folder("again")
    run_program(PROGRAM, [str(again), "--weights", str(tmp_path / "trained.weights.h5")])
    assert results(again)["losses"][0] < results(alone)["losses"][0]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--many-steps", "compiled with steps_per_execution=2; 1 was expected"),
        ("--own-loop", "trains in a loop of its own, where `fit` of a Keras model or a TF1-style"),
    ],
)
def test_other_training_is_refused(option: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=re.escape(words)):
        capture(PROGRAM, [str(tmp_path), option])


def test_it_is_not_tuned_while_it_trains(pesto: Pesto, tmp_path: Path) -> None:
    done = pesto("run", PROGRAM, "-m", "local-workers:2", "--tune", 500, "--", tmp_path)
    assert done.code == 2
    assert "variables cannot move to other devices during the training" in done.err
    assert not list(tmp_path.iterdir())


def test_another_model_and_verify_are_refused(
    pesto: Pesto, placement: Path, weights: Path, tmp_path: Path
) -> None:
    run = ("run", PROGRAM, "-m", "local-workers:2", "--placement", placement)
    done = pesto(*run, "--", tmp_path, "--units", "32")
    assert done.code == 2
    assert "is not the function of the placement" in done.err
    assert f"(pesto export {PROGRAM} --capture, with the same arguments)" in done.err
    assert not list(tmp_path.iterdir())
    done = pesto(*run, "--verify", "--", tmp_path, "--weights", weights)
    assert done.code == 2
    assert "TensorFlow makes no trace of the training steps of a Keras model" in done.err
