"""Machines with tens of devices: a model that is too large is recognised and skipped."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from placers import PLACERS
from random_problems import random_problem

from benchmarks.problems import layered, many_gpus
from pesto_cli import ilp
from pesto_cli.bounds import lower_bound_us
from pesto_cli.coarsen import coarsen
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.files import Profile, write_profile
from pesto_cli.ilp import cpsat, formulation, milp, search
from pesto_cli.ilp.formulation import Formulation
from pesto_cli.ilp.search import SolverRequest
from pesto_cli.ilp.size import LEAST_CONSTRAINTS, MOST_CONSTRAINTS, Size
from pesto_cli.strategies import Context
from pesto_cli.strategies.expert import Expert
from pesto_cli.strategies.insertion_scheduling import largest, mean

LONG = Limits(1e3)


def cpsat_model(
    problem: Problem, balance: float | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """Return the numbers of variables and constraints of the CP-SAT model."""
    built: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(cpsat, "_search", lambda model, request: built.append(model.cp.proto))
        cpsat.search(SolverRequest(Formulation.build(problem), LONG, balance=balance))
    return len(built[0].variables), len(built[0].constraints)


def milp_model(
    problem: Problem, balance: float | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """Return the numbers of variables and constraints of the MILP, without those for pairs."""
    files: list[str] = []

    def run(request: milp.MipRequest) -> milp.MipAnswer:
        files.append(request.model.read_text())
        return milp.MipAnswer()

    with monkeypatch.context() as patched:
        for family in ("no_overlap_on_devices", "congestion"):
            patched.setattr(milp, family, lambda model: None)
        milp.search(SolverRequest(Formulation.build(problem), LONG, balance=balance), run)
    (text,) = files
    rows = text[text.index("ROWS") : text.index("COLUMNS")].splitlines()
    return text.count("\n LO BND"), len(rows) - 2  # without the heading and the objective


@pytest.mark.parametrize("balance", [None, 0.2])
@pytest.mark.parametrize("model", [cpsat_model, milp_model])
def test_the_computed_size_bounds_the_size_of_the_built_model(
    model: Any, balance: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(60):
        problem = random_problem(seed, 4 + seed % 9, num_devices=2 + seed % 4)
        size = Size.of(problem, balance=balance is not None)
        variables, constraints = model(problem, balance, monkeypatch)
        assert variables == size.variables
        assert constraints <= size.constraints


def test_the_computed_size_of_a_large_model_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = coarsen(layered(400, machine=many_gpus(12)), 60).problem
    size = Size.of(problem)
    variables, constraints = cpsat_model(problem, None, monkeypatch)
    assert variables == size.variables
    assert constraints <= size.constraints < 1.05 * constraints


def test_the_largest_model_depends_on_the_time_limit_and_on_memory() -> None:
    def is_built(num_constraints: int, limits: Limits) -> bool:
        return not Size(1, num_constraints, 1).excess(limits)

    assert is_built(LEAST_CONSTRAINTS, Limits(0.01))
    assert not is_built(LEAST_CONSTRAINTS + 1, Limits(0.01))
    assert is_built(3 * LEAST_CONSTRAINTS, Limits(3.0))
    for limits in (Limits(1e6), Limits(0.01, deterministic=True)):
        assert is_built(MOST_CONSTRAINTS, limits)
        assert not is_built(MOST_CONSTRAINTS + 1, limits)


@pytest.mark.parametrize("solver", ilp.SOLVERS)
def test_a_model_that_is_too_large_is_not_built(
    solver: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = coarsen(layered(1000, machine=many_gpus(64)), 200).problem
    monkeypatch.setattr(formulation.Formulation, "build", lambda problem: 1 / 0)
    found = ilp.solve_ilp(problem, LONG, solver=solver)
    assert found.status is SolveStatus.UNKNOWN
    assert found.schedule is None
    assert found.bound_us == lower_bound_us(problem) > 0
    (note,) = caplog.messages
    assert note == found.left_out
    assert "200 nodes on 64 devices is skipped: it would have 6,2" in note


def test_a_milp_with_too_many_constraints_is_skipped(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_STEPS", 2000)
    problem = random_problem(6, 60, memory=False, num_devices=3)
    found = ilp.solve_ilp(problem, LONG, solver="cbc")
    assert found.status is SolveStatus.UNKNOWN
    assert "is skipped: the model has more than 2,000 constraints" in found.left_out
    assert caplog.messages == [found.left_out]


def test_limits_are_checked_also_while_no_open_pair_is_found() -> None:
    calls: list[int] = []
    problem = layered(80, machine=many_gpus(3))
    pairs = Formulation.build(problem).open_transfer_pairs(lambda: calls.append(1))
    num_transfers = Size.of(problem).transfers
    assert len(list(pairs)) < num_transfers**2 / 2
    assert len(calls) == num_transfers


SOLVED = r"""
import json, re, sys
from pathlib import Path
from pesto_cli.cli import main
try:
    main()
except SystemExit as exit_:
    assert not exit_.code, exit_.code
# Not `ru_maxrss`, which a process inherits from its parent.
peak_gib = int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 2**20
print(json.dumps({"peak_gib": peak_gib}), file=sys.stderr)
"""


def test_64_devices_are_solved_in_little_memory_with_a_note_on_the_skipped_model(
    tmp_path: Path,
) -> None:
    profile = tmp_path / "64.profile.json"
    write_profile(profile, Profile(layered(1000, machine=many_gpus(64))))
    argv = ["solve", str(profile), "-o", str(tmp_path / "p.json"), "--json", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", SOLVED, *argv, "--time-limit", "1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *messages, peak = done.stderr.splitlines()
    assert json.loads(peak)["peak_gib"] < 1.0
    (note,) = json.loads(done.stdout)["notes"]
    assert "the integer program of 200 nodes on 64 devices is skipped" in note
    assert messages == [note]


def test_other_strategies_skip_nothing(pesto: Pesto, tmp_path: Path) -> None:
    profile = tmp_path / "64.profile.json"
    write_profile(profile, Profile(layered(200, machine=many_gpus(64))))
    names = [name for name in PLACERS if name != "pesto"]
    done = pesto("compare", profile, "--strategies", ",".join(names), "--time-limit", 0.2, "--json")
    assert done.code == 0, done.err
    assert all(result["notes"] == [] for result in json.loads(done.out))


placer_module = importlib.import_module("pesto_cli.strategies.layer_placer")


@pytest.mark.parametrize(
    ("limits", "most_cuts", "num_tried"),
    [(Limits(0.0), 1000, 1), (Limits(1.0, deterministic=True), 7, 7)],
    ids=["time", "number"],
)
def test_the_expert_tries_cuts_within_its_limits(
    monkeypatch: pytest.MonkeyPatch, limits: Limits, most_cuts: int, num_tried: int
) -> None:
    tried: list[None] = []
    ordered = placer_module.ordered

    def counted(*arguments: Any) -> Any:
        tried.append(None)
        return ordered(*arguments)

    monkeypatch.setattr(placer_module, "ordered", counted)
    Expert(most_cuts=most_cuts)(layered(400, machine=many_gpus(16)), Context(limits))
    assert len(tried) == num_tried


def table_us(machine: Machine, num_bytes: Any, src: int, dst: int) -> FloatArray:
    linear = machine.latency_us[src, dst] + machine.us_per_byte[src, dst] * num_bytes
    return np.asarray(np.maximum(machine.min_us[src, dst], linear))


def test_transfer_times_of_all_pairs_equal_those_of_each_pair() -> None:
    num_bytes = np.random.default_rng(0).integers(0, 2**30, 50)
    machines = [random_problem(seed, num_devices=3).machine for seed in range(20)]
    for machine in [*machines, many_gpus(20)]:
        every = range(machine.num_devices)
        pairs = [(src, dst) for src in every for dst in every if src != dst]
        tables = [table_us(machine, num_bytes, *pair) for pair in pairs]
        assert np.array_equal(list(machine.transfers_us(num_bytes, pairs)), tables)
        # Equal to the last bit, as one bit can change which op wins a tie of ranks.
        assert np.array_equal(mean(iter(tables)), np.mean(tables, axis=0))
        assert np.array_equal(largest(iter(tables)), np.max(tables, axis=0))
