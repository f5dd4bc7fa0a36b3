"""Kernels are compiled before the time limit starts, for one signature; damaged files again."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba import njit
from numba.core.caching import IndexDataCacheFile

import pesto_cli
from pesto_cli import kernels
from pesto_cli.kernels import kernel

ROOT = Path(pesto_cli.__file__).parent
TESTS = Path(__file__).parent

# In a process of its own, because other tests call kernels with other types of arguments.
SOLVES = """
import json
import numpy as np
from placers import PLACERS
from random_problems import random_problem
from pesto_cli import api
from pesto_cli.coarsen import coarsen
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.labels import Labels
from pesto_cli.kernels import kernels
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import Device, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.strategies import STRATEGIES, Context
from pesto_cli.strategies.context import with_parameters
from pesto_cli.strategies.run import run

def signatures():
    return {name: list(map(str, each.signatures)) for name, each in kernels().items()}

api.warm_up()
before = signatures()
names, reached = kernels(), [name for name, known in before.items() if known]
for name in reached:  # grows by what each calls
    function = names[name].py_func
    for called in function.__code__.co_names:
        other = getattr(function.__globals__.get(called), "py_func", None)
        other = other and f"{other.__module__}.{other.__name__}"
        if other in names and other not in reached:
            reached.append(other)

alone = Machine((Device("GPU:0", "GPU", 2**34),), ())
def on(machine, num_ops, tensors=(), control_edges=()):
    graph = OpGraph.build([f"op{i}" for i in range(num_ops)], tensors, control_edges=control_edges)
    return Problem.build(graph, {"GPU": np.ones(num_ops)}, machine)

problems = [random_problem(seed, 14, num_devices=2 + seed % 3) for seed in range(3)]
for machine in (alone, PRESETS["v100x2-nvlink"]):
    problems += [on(machine, 0), on(machine, 1), on(machine, 2, [Tensor(0, 5, [1])])]
    problems += [on(machine, 4, [], [(0, 1)]), on(machine, 6, [Tensor(0, 2**36, [1, 2])], [(3, 4)])]
for problem in problems:
    for name in PLACERS:
        strategy = with_parameters(STRATEGIES[name], num_nodes=3)
        run(problem, strategy, Context(Limits(time_limit_s=0.02)))
roles = Labels.build(["x", "y", "z"], role=["feed", "compute", "compute"])
feed = OpGraph.build(["x", "y", "z"], [Tensor(0, 1, [1])], labels=roles)
times = {"GPU": [1.0, 1.0, 1.0], "CPU": [1.0, 1.0, 1.0]}
coarsen(Problem.build(feed, times, PRESETS["v100x2-nvlink"]), 2)  # merges pairs that heights leave
after = signatures()
print(json.dumps({"before": before, "reached": reached, "after": after}))
"""


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    """Signatures by kernel after the warm-up and after solves, and the kernels in the warm-up."""
    done = subprocess.run(
        [sys.executable, "-c", SOLVES],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT.parent, TESTS)))},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_warm_up_reaches_every_kernel(compiled: dict[str, Any]) -> None:
    written = [path.read_text() for path in ROOT.rglob("*.py")]
    number = sum(text.count("@kernel\n") + text.count("@step\n") for text in written)
    assert len(compiled["before"]) == number > 0
    assert set(compiled["reached"]) == set(compiled["before"])


def test_solves_by_every_strategy_compile_nothing_after_the_warm_up(
    compiled: dict[str, Any],
) -> None:
    assert compiled["after"] == compiled["before"]


def test_every_kernel_is_compiled_for_one_signature(compiled: dict[str, Any]) -> None:
    """Exceptions are kernels that other kernels call with a constant: numba compiles both."""
    for name, known in compiled["after"].items():
        types = {re.sub(r"Literal\[int\]\(-?\d+\)", "int64", each) for each in known}
        assert len(types) <= 1, name


SOURCE = "def plus(one, other):\n    return one + other\n"


def loaded(folder: Path, decorator: Any = kernel) -> ModuleType:
    """Load the module with a kernel `plus`, as a new process does."""
    path = folder / "sums.py"
    if not path.exists():
        path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("sums", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.plus = decorator(module.plus)
    return module


def hits_and_misses(folder: Path) -> tuple[int, int]:
    """Return hits and misses of numba's cache for a call in a simulated new process."""
    plus = loaded(folder).plus
    assert plus(1, 2) == 3
    return sum(plus.stats.cache_hits.values()), sum(plus.stats.cache_misses.values())


def flipped(data: bytes) -> bytes:
    """Return the data with one bit in the middle flipped."""
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize(
    "damaged",
    [
        lambda data: b"",
        lambda data: data[:10],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: bytes(len(data)),
        lambda data: b"nothing of the kind",
        flipped,
    ],
    ids=["empty", "begun", "half", "all but a byte", "zeros", "text", "a bit"],
)
def test_a_damaged_kernel_is_compiled_again(tmp_path: Path, suffix: str, damaged: Any) -> None:
    assert hits_and_misses(tmp_path) == (0, 1)
    assert hits_and_misses(tmp_path) == (1, 0)
    (path,) = tmp_path.rglob(f"*.{suffix}")
    path.write_bytes(damaged(path.read_bytes()))
    assert hits_and_misses(tmp_path) == (0, 1)
    assert hits_and_misses(tmp_path) == (1, 0)


def test_a_kernel_that_numba_cached_without_a_hash_is_compiled_again(tmp_path: Path) -> None:
    assert loaded(tmp_path, njit(cache=True)).plus(1, 2) == 3
    assert hits_and_misses(tmp_path) == (0, 1)
    assert hits_and_misses(tmp_path) == (1, 0)


PAIR = """
from typing import NamedTuple

class Pair(NamedTuple):
    one: int
    other: int
"""
STEP = """
from pesto_cli.kernels import step

@step
def difference(pair):
    return pair.other - pair.one
"""
WHOLE = """
from pair import Pair
from parts import difference
from pesto_cli.kernels import kernel

@kernel
def minus(one, other):
    return difference(Pair(one, other))
"""
CALL = """
import sys
sys.path.insert(0, {folder!r})
from whole import minus
print(minus(1, 3), sum(minus.stats.cache_hits.values()))
"""


def test_a_kernel_is_compiled_again_when_a_step_or_tuple_of_another_file_has_changed(
    tmp_path: Path,
) -> None:
    def difference_and_hits() -> list[str]:
        call = [sys.executable, "-B", "-c", CALL.format(folder=str(tmp_path))]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    for name, text in {"pair": PAIR, "parts": STEP, "whole": WHOLE}.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert difference_and_hits() == ["2", "0"]
    assert difference_and_hits() == ["2", "1"]
    (tmp_path / "parts.py").write_text(STEP.replace("-", "+"))
    assert difference_and_hits() == ["4", "0"]
    assert difference_and_hits() == ["4", "1"]
    (tmp_path / "parts.py").write_text(STEP)
    assert difference_and_hits() == ["2", "0"]
    # numba regards this as the same type.
    fields = "one: int\n    other: int", "other: int\n    one: int"
    (tmp_path / "pair.py").write_text(PAIR.replace(*fields))
    assert difference_and_hits() == ["-2", "0"]


def test_a_full_disk_prevents_the_cache_but_not_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_open_for_write", refuse)
    assert hits_and_misses(tmp_path) == (0, 1)
    assert hits_and_misses(tmp_path) == (0, 1)


def test_kernels_are_cached_if_each_was_compiled_from_this_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def are_cached() -> bool:
        module = loaded(tmp_path)
        monkeypatch.setattr(kernels, "sys", type("", (), {"modules": {"pesto_cli.sums": module}}))
        return kernels.are_cached()

    assert not are_cached()
    assert hits_and_misses(tmp_path) == (0, 1)
    assert are_cached()
    (tmp_path / "sums.py").write_text(SOURCE.replace("one", "first"))
    assert not are_cached()
    assert hits_and_misses(tmp_path) == (0, 1)
    (path,) = tmp_path.rglob("*.nbi")
    path.write_bytes(path.read_bytes()[:20])
    assert not are_cached()
