"""`place_function` with split ops: Keras `fit` and a custom loop compute the same as whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = Path(__file__).parent / "split_functions_program.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of the program, which runs in a separate process."""
    output = tmp_path_factory.mktemp("split") / "found.json"
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(output)],
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text())


def check_close(first: Any, second: Any) -> None:
    """Compare two structures of numbers, to rounding."""
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        first, second = list(first.values()), list(second.values())
    assert len(first) == len(second) > 0
    for ours, others in zip(first, second, strict=True):
        np.testing.assert_allclose(ours, others, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["split", "whole, split", "split, whole"])
@pytest.mark.parametrize("results", ["history", "evaluated", "variables"])
def test_fit_computes_the_same_and_its_files_load_both_ways(
    way: str, results: str, found: Any
) -> None:
    whole = "whole, whole" if "," in way else "whole"
    check_close(found["fit"][way][results], found["fit"][whole][results])


def test_parts_of_a_fitted_model_run_on_their_devices(found: Any) -> None:
    facts = found["fit"]["split"]
    assert facts["elsewhere"] == []
    assert facts["on"] == ["/device:CPU:0", "/device:CPU:1"]
    assert facts["num ran"] >= facts["num parts"] > 20


@pytest.mark.parametrize("way", ["split", "whole, split", "split, whole"])
def test_a_custom_loop_computes_the_same_and_its_checkpoints_load_both_ways(
    way: str, found: Any
) -> None:
    whole = found["loop"]["whole, whole" if "," in way else "whole"]
    split = found["loop"][way]
    check_close(split["losses"], whole["losses"])
    check_close(split["variables"], whole["variables"])
    assert split["count"] == whole["count"] == (8 if "," in way else 4)


def test_a_plan_that_splits_a_variable_is_refused(found: Any) -> None:
    words = "splits the variable 'first', but checkpoints of Keras and TensorFlow 2 know neither"
    assert words in found["refusal"]
