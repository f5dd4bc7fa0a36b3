"""Problems small enough to solve on paper, shared by the tests."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Before TensorFlow: see pesto_cli/graphdef/tensorflow.py.
import ortools.sat.python.cp_model  # noqa: F401
import pytest
from warm_virtual_cluster import warm_process

from pesto_cli import cli
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.files import Profile, write_profile
from pesto_cli.garbage import collect_rarely
from pesto_cli.profile.analytic import virtual_cluster

collect_rarely()

# In a background job Ctrl-C is ignored, also by the processes that tests start. Undo this.
signal.signal(signal.SIGINT, signal.default_int_handler)

# These files take more than 20 s each. They come first, so that no worker ends with one of them
# while the others have nothing left to do.
LONG = (
    *("test_virtual_scheduler", "test_cluster", "test_fuzz", "test_place", "test_tensor_parallel"),
    *("test_docs", "test_quality", "test_ci_example", "test_doctor", "test_split_functions"),
    *("test_programs_of_others", "test_split_models", "test_split_placements", "test_live_split"),
    *("test_learned", "test_refine", "test_tuning", "test_zoo", "test_ilp", "test_runner"),
    *("test_sharding_rules", "test_split_search", "test_keras_programs", "test_fewer_hosts"),
    *("test_live_tuning", "test_language_models", "test_report_in_browser"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)


def pytest_collection_finish() -> None:
    """Let Python search for garbage only among what tests make, not among modules and tests."""
    gc.freeze()


def two_gpus(latency_us: float = 1.0, memory_bytes: int = 10**9) -> Machine:
    """A CPU and two GPUs, every link `latency_us` + 1 us per 1000 bytes, signals 0.5 us."""
    names = ["CPU:0", "GPU:0", "GPU:1"]
    comm = CommModel(latency_us, 0.001)
    return Machine(
        tuple(Device(name, name[:3], memory_bytes) for name in names),
        tuple(Link(src, dst, comm) for src in names for dst in names if src != dst),
        signal_us=0.5,
    )


def on_gpus(graph: OpGraph, time_us: list[float], machine: Machine | None = None) -> Problem:
    """A problem whose ops all run on GPUs."""
    return Problem.build(graph, {"GPU": np.array(time_us, float)}, machine or two_gpus())


@pytest.fixture
def diamond() -> Problem:
    """A graph a -> b, c -> d with 1000 bytes on every edge; 1, 10, 10 and 1 us."""
    graph = OpGraph.build(
        ["a", "b", "c", "d"],
        [Tensor(0, 1000, [1, 2]), Tensor(1, 1000, [3]), Tensor(2, 1000, [3])],
        types=["MatMul"] * 4,
    )
    return on_gpus(graph, [1, 10, 10, 1])


@pytest.fixture
def diamond_profile(tmp_path: Path, diamond: Problem) -> Path:
    path = tmp_path / "diamond.profile.json"
    write_profile(path, Profile(diamond, {"graph_hash": "0" * 64}))
    return path


@pytest.fixture
def server() -> Machine:
    return PRESETS["v100x2-nvlink"]


# oneDNN fuses neighbouring ops on a CPU, whatever the session's settings; the fused op rounds
# differently.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"


@pytest.fixture(scope="session", autouse=True)
def forked_virtual_cluster() -> Iterator[None]:
    """Run TensorFlow's virtual cluster in forks of one process."""
    with warm_process() as warm, pytest.MonkeyPatch.context() as patch:
        patch.setattr(virtual_cluster, "subprocess", warm)
        yield


@pytest.fixture
def new_virtual_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a new process for each run of TensorFlow's virtual cluster, as users do."""
    monkeypatch.setattr(virtual_cluster, "subprocess", subprocess)


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Pesto = Callable[..., Outcome]


@pytest.fixture
def pesto(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Pesto:
    """A function that runs a command in this process; it returns exit code, stdout and stderr."""

    def run(*argv: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["pesto", *map(str, argv)])
        code = 0
        try:
            cli.main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err, captured.err
        return Outcome(code, captured.out, captured.err)

    return run


Write = Callable[[str], Path]


@pytest.fixture
def script(tmp_path: Path) -> Write:
    """A function that writes a script and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    """An IPython shell that shows pesto's values as cards, as in a notebook."""
    from IPython.core.interactiveshell import InteractiveShell

    from pesto_cli.bounds import critical_path_us
    from pesto_cli.report.notebook import register

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    register(shell, critical_path_us)
    yield shell
    InteractiveShell.clear_instance()
