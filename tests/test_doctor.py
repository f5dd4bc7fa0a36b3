"""`pesto doctor`: findings of a working installation, and of a broken one."""

import json
import sys
import tempfile
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from conftest import Pesto

import pesto_cli.doctor
import pesto_cli.evaluation.simulator
from pesto_cli.doctor import Finding, Outcome, probes, system
from pesto_cli.doctor.check import Probe
from pesto_cli.doctor.child_process import run_in_child
from pesto_cli.errors import EnvironmentFailedError


def test_all_required_checks_pass_in_the_test_environment(pesto: Pesto) -> None:
    done = pesto("doctor", "--json")
    assert done.code == 0, done.out
    found = {check["name"]: check for check in json.loads(done.out)}
    required = ("pesto", "numba", "TensorFlow", "solver cpsat", "solver cbc", "kernel cache")
    for name in (*required, "splitting"):
        assert found[name]["verdict"] == "ok", found[name]
    assert "CPU:0" in found["TensorFlow"]["found"]
    assert found["solver cpsat"]["found"].startswith("ortools 9.15")


BROKEN = [
    Finding("numpy", Outcome.OK, "2.4.6"),
    Finding("solver highs", Outcome.WARN, "not installed", "pip install highspy"),
    Finding("TensorFlow", Outcome.FAIL, "not installed", "pip install tensorflow"),
]


@pytest.mark.parametrize(("found", "code"), [(BROKEN[:2], 0), (BROKEN, 5)])
def test_only_required_checks_decide_the_exit_code(
    pesto: Pesto, monkeypatch: pytest.MonkeyPatch, found: list[Finding], code: int
) -> None:
    monkeypatch.setattr(pesto_cli.doctor, "checks", lambda: found)
    done = pesto("doctor")
    assert done.code == code
    assert done.out.split("\n")[0].strip() == "found"
    assert all(check.name in done.out and check.remedy in done.out for check in found)
    assert ("needs TensorFlow, which failed on this machine" in done.err) == (code == 5)
    quiet = pesto("doctor", "--quiet")
    assert "numpy" not in quiet.out
    assert "pip install highspy" in quiet.out


def test_a_probe_that_crashes_or_fails_gives_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFailedError, match="solver 'glpk' is unknown"):
        run_in_child(probes.solved, "glpk")
    monkeypatch.setattr(
        "pesto_cli.doctor.child_process.COMMAND",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    )
    with pytest.raises(EnvironmentFailedError, match="was killed by SIGSEGV"):
        run_in_child(probes.isolated)
    probe = Probe("workers", lambda: run_in_child(probes.isolated), Outcome.WARN, "do this")
    assert probe() == Finding(
        "workers", Outcome.WARN, "its process was killed by SIGSEGV", "do this"
    )


def refuse(*args: object, **kwargs: object) -> None:
    raise OSError(30, "Read-only file system")


NOT_CACHED = SimpleNamespace(stats=SimpleNamespace(cache_path=None))


@pytest.mark.parametrize(
    ("target", "name", "value", "look", "words"),
    [
        (sys, "version_info", (3, 14, 0), system.python, "not tested with"),
        (system.os, "sched_getaffinity", lambda pid: {0}, system.cores, "1 of "),
        (system, "memory_bytes", lambda: 2**30, system.memory, "only 1.0 GiB"),
        (tempfile, "TemporaryFile", refuse, probes.kernel_cache, "is not writable"),
        (
            pesto_cli.evaluation.simulator,
            "simulate",
            NOT_CACHED,
            probes.kernel_cache,
            "no folder for comp",
        ),
        (sys, "argv", [], lambda: system.version("no-such-package"), "not installed"),
    ],
)
def test_a_failed_check_names_what_was_found(
    monkeypatch: pytest.MonkeyPatch,
    target: object,
    name: str,
    value: object,
    look: Callable[[], str],
    words: str,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(target, name, value)
        with pytest.raises(EnvironmentFailedError, match=words):
            look()
