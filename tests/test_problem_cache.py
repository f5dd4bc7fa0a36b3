"""Results that depend on a problem alone are computed once, and deleted with the problem."""

import gc
import weakref
from collections import Counter

import numpy as np
import pytest
from random_problems import random_problem

from pesto_cli import api, bounds
from pesto_cli.data.graph import BoolArray, FloatArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem
from pesto_cli.files import Profile


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> Counter[Problem]:
    """Number of computations of `lower_bound_us` for each problem."""
    found: Counter[Problem] = Counter()
    work = bounds.heads_and_tails

    def counted(problem: Problem) -> tuple[FloatArray, FloatArray]:
        found[problem] += 1
        return work(problem)

    monkeypatch.setattr(bounds, "heads_and_tails", counted)
    return found


def unsolved(seed: int) -> Profile:
    return Profile(random_problem(seed, 40))


def test_solve_computes_the_bound_of_a_problem_once(bounded: Counter[Problem]) -> None:
    profile = unsolved(1)
    limits = {"time_limit_s": 0.5, "deterministic": True}
    api.solve(profile, num_nodes=10, **limits)
    assert bounded[profile.problem] == 1
    assert max(bounded.values()) == 1


def test_compare_computes_the_bound_of_a_problem_once(bounded: Counter[Problem]) -> None:
    profile = unsolved(2)
    api.compare(profile, ["single", "heft", "pesto", "random"], time_limit_s=0.2)
    assert bounded[profile.problem] == 1


def test_report_computes_the_bound_of_a_problem_once(bounded: Counter[Problem]) -> None:
    profile = unsolved(3)
    placed = {name: api.compare(profile, [name])[0] for name in ("heft", "metis")}
    api.report(profile, placed)
    assert bounded[profile.problem] == 1


def test_a_value_is_cached_for_each_problem_and_deleted_with_it() -> None:
    calls = []

    @cached_per_problem
    def allowed(problem: Problem) -> BoolArray:
        calls.append(problem.num_ops)
        return np.array(problem.allowed)

    problems = [random_problem(seed, 5) for seed in range(5)]
    for problem in [*problems, *problems]:
        assert np.array_equal(allowed(problem), problem.allowed)
    assert len(calls) == len(problems)
    gone = [weakref.ref(problem) for problem in problems]
    del problem, problems
    gc.collect()
    assert not any(reference() for reference in gone)
