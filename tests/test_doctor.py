"""`pesto doctor`: what it finds where all is well, and what it says where it is not."""

import json
import sys
import tempfile
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from conftest import Pesto

import pesto_cli.doctor
import pesto_cli.evaluation.simulator
from pesto_cli.doctor import Finding, Outcome, parts, probes
from pesto_cli.doctor.apart import apart
from pesto_cli.doctor.check import Probe
from pesto_cli.errors import EnvironmentFailedError


def test_all_that_is_needed_works_where_the_tests_run(pesto: Pesto) -> None:
    told = pesto("doctor", "--json")
    assert told.code == 0, told.out
    found = {check["name"]: check for check in json.loads(told.out)}
    for name in ("pesto", "numba", "TensorFlow", "solver cpsat", "solver cbc", "kernel cache"):
        assert found[name]["verdict"] == "ok", found[name]
    assert "CPU:0" in found["TensorFlow"]["found"]
    assert found["solver cpsat"]["found"].startswith("ortools 9.15")


BROKEN = [
    Finding("numpy", Outcome.OK, "2.4.6"),
    Finding("solver highs", Outcome.WARN, "not installed", "pip install highspy"),
    Finding("TensorFlow", Outcome.FAIL, "not installed", "pip install tensorflow"),
]


@pytest.mark.parametrize(("found", "code"), [(BROKEN[:2], 0), (BROKEN, 5)])
def test_only_what_is_needed_decides_on_the_exit_code(
    pesto: Pesto, monkeypatch: pytest.MonkeyPatch, found: list[Finding], code: int
) -> None:
    monkeypatch.setattr(pesto_cli.doctor, "checks", lambda: found)
    told = pesto("doctor")
    assert told.code == code
    assert all(check.name in told.out and check.remedy in told.out for check in found)
    assert ("does not work here: TensorFlow" in told.err) == (code == 5)
    quiet = pesto("doctor", "--quiet")
    assert "numpy" not in quiet.out
    assert "pip install highspy" in quiet.out


def test_a_probe_that_crashes_or_fails_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFailedError, match="solver 'glpk' is unknown"):
        apart(probes.solved, "glpk")
    monkeypatch.setattr(
        "pesto_cli.doctor.apart.COMMAND", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    )
    with pytest.raises(EnvironmentFailedError, match="was killed by SIGSEGV"):
        apart(probes.isolated)
    probe = Probe("workers", lambda: apart(probes.isolated), Outcome.WARN, "do this")
    assert probe() == Finding(
        "workers", Outcome.WARN, "its process was killed by SIGSEGV", "do this"
    )


def refuse(*args: object, **kwargs: object) -> None:
    raise OSError(30, "Read-only file system")


NOWHERE_KEPT = SimpleNamespace(stats=SimpleNamespace(cache_path=None))


@pytest.mark.parametrize(
    ("target", "name", "value", "look", "words"),
    [
        (sys, "version_info", (3, 14, 0), parts.python, "not tested with"),
        (parts.os, "sched_getaffinity", lambda pid: {0}, parts.cores, "1 of "),
        (parts, "memory_bytes", lambda: 2**30, parts.memory, "only 1.0 GiB"),
        (tempfile, "TemporaryFile", refuse, probes.kernel_cache, "cannot be written to"),
        (
            pesto_cli.evaluation.simulator,
            "simulate",
            NOWHERE_KEPT,
            probes.kernel_cache,
            "no folder for comp",
        ),
        (sys, "argv", [], lambda: parts.version("no-such-package"), "not installed"),
    ],
)
def test_what_is_short_is_named(
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
