"""The search is as good as before: makespans in `quality.json`, in deterministic mode.

The makespans of two seeds differ by some per cent, so each value is the mean over several seeds.
After an improvement, or a change of the models, store the new makespans and commit them:

    python tests/test_quality.py
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pesto_cli import api
from pesto_cli.data.result import Result
from pesto_cli.files import Profile

STORED = Path(__file__).parent / "quality.json"
TOLERANCE = 0.02
MODELS = ("RNNLM-2-2048", "Transformer-tiny")
STARTS = ("cheap strategies", "single")
SEEDS = (0, 1, 2)
TIME_LIMIT_S = 3

CASES = [(model, start) for model in MODELS for start in STARTS]


@cache
def profile_of(model: str) -> Profile:
    return api.profile(api.export(f"zoo:{model}"), api.read_machine("v100x2-nvlink"))


@cache
def quick(model: str, strategy: str) -> Result:
    (result,) = api.compare(profile_of(model), [strategy])
    return result


@cache
def solved(model: str, start: str, seed: int) -> Result:
    limits = api.Limits(time_limit_s=TIME_LIMIT_S, seed=seed, deterministic=True)
    context = api.Context(limits)
    if start == "single":
        placement = quick(model, "single").schedule.placement
        context = replace(context, warm_start=placement)
    strategy = api.Pesto(cheap_starts=start != "single")
    return api.solve(profile_of(model), strategy, context)


def mean_ms(model: str, start: str) -> float:
    return sum(solved(model, start, seed).makespan_us for seed in SEEDS) / len(SEEDS) / 1e3


@pytest.mark.parametrize(("model", "start"), CASES)
def test_no_makespan_is_worse_than_the_stored_one(model: str, start: str) -> None:
    stored_ms = json.loads(STORED.read_text())[model][start]
    found_ms = mean_ms(model, start)
    assert found_ms <= (1 + TOLERANCE) * stored_ms, (
        f"{model} from {start} takes {found_ms:.3f} ms, but the stored makespan is "
        f"{stored_ms:.3f} ms; if this is intended, run: python tests/{Path(__file__).name}"
    )


@pytest.mark.parametrize(("model", "start"), CASES)
def test_pesto_is_never_worse_than_single_and_expert(model: str, start: str) -> None:
    best_us = min(quick(model, strategy).makespan_us for strategy in ("single", "expert"))
    for seed in SEEDS:
        assert solved(model, start, seed).makespan_us <= best_us


def test_the_same_seed_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    profile, placements = tmp_path / "profile.json", []
    api.write_profile(profile, profile_of("Transformer-tiny"))
    for hash_seed in ("1", "2"):
        placement = tmp_path / f"{hash_seed}.json"
        search = ["--time-limit", "1", "--seed", "5", "--deterministic", "--quiet", "--json"]
        script = "from pesto_cli.cli import main; main()"
        subprocess.run(
            [sys.executable, "-c", script, "solve", profile, "-o", placement, *search],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            check=True,
        )
        placements.append(placement.read_bytes())
    assert placements[0] == placements[1]


def store() -> None:
    """Replace the stored makespans by the current ones."""
    found = {
        model: {start: round(mean_ms(model, start), 4) for start in STARTS} for model in MODELS
    }
    STORED.write_text(json.dumps(found, indent=2) + "\n")
    print(STORED.read_text(), end="")


if __name__ == "__main__":
    store()
