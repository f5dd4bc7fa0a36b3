"""`place_function`: a Keras step on two devices computes the same as without a placement."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = Path(__file__).parent / "placed_function_program.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of the program, which runs in a separate process."""
    output = tmp_path_factory.mktemp("placed") / "found.json"
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(output)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text())


@pytest.mark.parametrize("model", ["plain", "with conditional"])
def test_training_results_are_identical(model: str, found: Any) -> None:
    assert found[model]["placed"] == found[model]["expected"]
    # Two log values of each of five steps, and the variables.
    assert len(found[model]["expected"]) > 10


def test_a_while_loop_that_runs_as_one_op_computes_the_same(found: Any) -> None:
    pairs = zip(found["with loop"]["placed"], found["with loop"]["expected"], strict=True)
    for placed, expected in pairs:
        np.testing.assert_allclose(placed, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", ["plain", "with loop", "with conditional"])
def test_every_op_and_variable_is_on_its_device(model: str, found: Any) -> None:
    facts = found[model]
    assert facts["elsewhere"] == []
    assert facts["variables on"] == ["device:CPU:0", "device:CPU:1"]
    # Only arguments and handles are missing from the graphs of the runtime.
    assert facts["num ran"] > 0.85 * facts["num planned"]


@pytest.mark.parametrize("model", ["plain", "with loop", "with conditional"])
def test_no_op_starts_before_ops_of_lower_rank_on_its_device_end(model: str, found: Any) -> None:
    assert found[model]["early"] == []
    assert found[model]["num ordered"] > 100


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("variables elsewhere", "pesto_cli.apply.placed_variables(placement, devices)"),
        ("no such device", "uses /device:GPU:3, where one of"),
        ("another function", "'Tanh' is only in this graph"),
        ("nested", "called within another tf.function"),
    ],
)
def test_a_function_or_placement_that_does_not_fit_is_refused(
    case: str, expected: str, found: Any
) -> None:
    assert expected in found["refusals"][case]
