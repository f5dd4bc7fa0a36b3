"""Tests of the proofs that no placement fits: they are correct, and precede any search."""

from collections import Counter
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto, on_gpus, two_gpus
from priced_problems import priced_problem
from random_problems import random_problem

from pesto_cli import api
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.data.schedule import Placement, shortfall_bytes
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError, InfeasibleError, NoSolutionError
from pesto_cli.evaluation.feasibility import (
    unavoidable_shortfall,
    unavoidable_shortfall_of_plans,
)
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import Profile, write_profile
from pesto_cli.strategies import Context
from pesto_cli.strategies.single import Single


def tight(seed: int) -> Problem:
    """Return a random problem of three or four ops; the devices may be too small."""
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, int(rng.integers(3, 5)), memory=False)
    graph = replace(problem.graph, resident_bytes=rng.integers(0, 6, problem.num_ops))
    most = int(graph.resident_bytes.sum() + graph.tensor_bytes.sum())
    memory = rng.integers(1, max(2, most), problem.num_devices).tolist()
    devices = [
        replace(device, memory_bytes=size)
        for device, size in zip(problem.machine.devices, memory, strict=True)
    ]
    machine = replace(problem.machine, devices=tuple(devices))
    return replace(problem, graph=graph, machine=machine, headroom=float(rng.choice([0.7, 1.0])))


def fits_somehow(problem: Problem) -> bool:
    """Return whether any placement with any order of the ops fits; tries all of them."""
    simulator, graph = Simulator(problem), problem.graph
    choices = [np.flatnonzero(row) for row in problem.group_allowed]
    for of_group in product(*choices):
        device = np.array(of_group)[graph.colocation_group]
        for order in permutations(range(problem.num_ops)):
            rank = np.array([order[op] for op in range(problem.num_ops)])
            for index in range(problem.num_devices):
                here = np.flatnonzero(device == index)
                rank[here] = np.argsort(np.argsort(rank[here]))
            try:
                schedule = simulator.replay(Placement(device, rank))
            except BadInputError:  # the order contradicts precedence
                continue
            if not shortfall_bytes(problem, schedule).any():
                return True
    return False


def test_no_placement_fits_a_problem_with_a_proof() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(400):
        problem = tight(seed)
        reason = unavoidable_shortfall(problem)
        if reason is None:
            continue
        kind = next(
            kind for kind in ("inputs and", "may only be on", "of variables, and") if kind in reason
        )
        kinds[kind] += 1
        if kinds[kind] <= 15:
            assert not fits_somehow(problem), (seed, reason)
    assert len(kinds) == 3
    assert min(kinds.values()) >= 15


def test_most_problems_that_do_not_fit_have_a_proof() -> None:
    found = [(unavoidable_shortfall(p), fits_somehow(p)) for p in map(tight, range(60))]
    nowhere = [reason for reason, fits in found if not fits]
    assert len(nowhere) > 10
    assert sum(reason is not None for reason in nowhere) > 0.7 * len(nowhere)


def variables(sizes: list[int], groups: list[int], memory: int, **kwargs: Any) -> Problem:
    names = [f"v{number}" for number in range(len(sizes))]
    graph = OpGraph.build(names, colocation_group=groups, resident_bytes=sizes, **kwargs)
    return on_gpus(graph, [1.0] * len(sizes), two_gpus(memory_bytes=memory))


def test_a_variable_that_is_larger_than_every_device_is_named() -> None:
    reason = unavoidable_shortfall(variables([10, 2000], [0, 1], 1500))
    assert reason == (
        "op 'v1' keeps 2,000 bytes of variables, and GPU:0, the largest device that may run it, "
        "has 1,500 bytes to use"
    )


def test_a_colocation_group_that_is_larger_than_every_device_is_named() -> None:
    reason = unavoidable_shortfall(variables([700, 900, 10], [0, 0, 1], 1500))
    assert reason == (
        "op 'v1' (900 bytes) and others that share its device keep 1,600 bytes of variables, and "
        "GPU:0, the largest device that may run it, has 1,500 bytes to use"
    )


def test_variables_that_do_not_fit_together_are_reported_with_their_sum() -> None:
    reason = unavoidable_shortfall(variables([900, 1100, 1200], [0, 1, 2], 1500))
    assert reason == (
        "variables that may only be on GPU:0, GPU:1 take 3,200 bytes, but 3,000 bytes may be used "
        "there; the largest are those of op 'v2' (1,200 bytes)"
    )


def test_variables_that_fit_on_no_devices_together_are_refused_however_they_are_split() -> None:
    problem = priced_problem(3)
    machine, devices = problem.machine, problem.machine.devices
    small = replace(machine, devices=tuple(replace(each, memory_bytes=100) for each in devices))
    for each_bytes, fits in ((100, True), (101, False)):
        resident = np.zeros(problem.num_ops, dtype=np.int64)
        resident[:2] = each_bytes
        graph = replace(
            problem.graph, resident_bytes=resident, colocation_group=np.zeros_like(resident)
        )
        together = replace(problem, graph=graph, machine=small)
        # Whole ops of one group need a device that holds both variables.
        assert unavoidable_shortfall(together) is not None
        assert (unavoidable_shortfall_of_plans(together) is None) == fits
        if not fits:
            with pytest.raises(InfeasibleError, match="take 202 bytes, but 200 bytes may be"):
                api.solve(Profile(together, {}), "pesto")


def test_variables_confined_to_unions_of_device_sets_are_counted() -> None:
    """Two pairs of devices share one; each pair alone has enough memory for its variables."""
    machine = two_gpus(memory_bytes=1000)
    graph = OpGraph.build(["a", "b", "c", "d"], resident_bytes=[900, 800, 800, 700])
    times = np.ones(4)
    problem = Problem.build(graph, {"GPU": times, "CPU": times}, machine)
    permitted = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1], [0, 1, 1]], dtype=bool)
    reason = unavoidable_shortfall(problem.constrained(permitted=permitted))
    assert reason is not None
    assert "CPU:0, GPU:0, GPU:1 take 3,200 bytes, but 3,000 bytes may be used" in reason


def test_inputs_and_outputs_of_an_op_are_added_to_the_variables_on_its_device() -> None:
    graph = OpGraph.build(["v", "a", "b"], [Tensor(1, 600, [2])], resident_bytes=[500, 0, 0])
    problem = on_gpus(graph, [1.0] * 3, two_gpus(memory_bytes=1000))
    assert unavoidable_shortfall(problem) is None
    pinned = np.array([[0, 1, 0]] * 3, dtype=bool)
    reason = unavoidable_shortfall(problem.constrained(permitted=pinned))
    assert reason == (
        "op 'a' needs 600 bytes for its inputs and outputs, in addition to 500 bytes of variables, "
        "and GPU:0, the largest device that may run it, has 1,000 bytes to use"
    )


@pytest.fixture
def too_large(tmp_path: Path) -> Path:
    graph = OpGraph.build(["a", "product", "c"], [Tensor(0, 700, [1]), Tensor(1, 800, [2])])
    path = tmp_path / "p.json"
    write_profile(path, Profile(on_gpus(graph, [1.0] * 3, two_gpus(memory_bytes=1000))))
    return path


@pytest.fixture
def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(*_: object, **__: object) -> None:
        raise AssertionError("a strategy ran")

    monkeypatch.setattr(api.placing, "run", searched)


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("strategy", ["pesto", "single", "m-etf"])
def test_solve_refuses_without_a_search_if_no_placement_fits(
    pesto: Pesto, tmp_path: Path, too_large: Path, strategy: str
) -> None:
    output = tmp_path / "placed.json"
    refused = pesto("solve", too_large, "-o", output, "--strategy", strategy)
    assert refused.code == 3
    assert refused.err.splitlines()[-1] == (
        "Error: no placement can fit into memory: op 'product' needs 1,500 bytes for its inputs "
        "and outputs, in addition to 0 bytes of variables, and GPU:0, the largest device that may "
        "run it, has 1,000 bytes to use; reduce the batch size, use devices with more memory, or "
        "relax the headroom."
    )
    assert not output.exists()


def test_a_strategy_that_rewrites_the_graph_is_still_called(too_large: Path) -> None:
    class Rewriting:
        rewrites = True

        def __call__(self, problem: Problem, context: Context) -> Solution:
            raise NoSolutionError("it was asked; ask another.")

    profile = api.read_profile(too_large)
    with pytest.raises(NoSolutionError):
        api.solve(profile, Rewriting())
    with pytest.raises(InfeasibleError):
        api.solve(profile, Single())


def test_compare_reports_that_no_placement_fits_without_a_search(too_large: Path) -> None:
    (result,) = api.compare(api.read_profile(too_large), ["pesto"], time_limit_s=600)
    assert result.status is SolveStatus.OUT_OF_MEMORY
    assert "so the search is skipped: op 'product'" in result.solution.notes[0]
