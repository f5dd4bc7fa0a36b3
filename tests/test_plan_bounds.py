"""The lower bound over all plans against the optimum: all plans, placements and orders."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import brute_force
import numpy as np
import pytest
from priced_problems import LARGE, Step, priced, priced_problem, spec_of

from pesto_cli.bounds import load_us, plans
from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.errors import UnfitError
from pesto_cli.profile.parts.programs import splits
from pesto_cli.sharding.problems import prices_of
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.run import run

CONSTRUCTIVE = ("data-parallel", "tensor-parallel", "os-dpos", "single")
SEEDS = range(50)
SEARCHED = 3
"""The number of problems that `pesto` solves: even with a tiny limit it takes a second for each."""
MOST_PLANS = 100
ROUNDING = 1e-6


class Solved(NamedTuple):
    """A problem, the results of strategies, and the best makespan of all plans with two parts.

    optimum_us: inf if no such plan is as good as the best result.
    """

    problem: Problem
    results: list[Result]
    optimum_us: float

    @property
    def best_us(self) -> float:
        """The shortest makespan that is known."""
        return min(self.optimum_us, *(result.makespan_us for result in self.results))


def solved(problem: Problem, strategies: Sequence[str]) -> Solved:
    context = Context(Limits(time_limit_s=0.002, deterministic=True))
    results = []
    for strategy in strategies:
        with suppress(UnfitError):
            results.append(run(problem, strategy, context))
    best_us = min(result.makespan_us for result in results)
    return Solved(problem, results, brute_force.optimum_of_plans_us(problem, best_us + ROUNDING))


@pytest.fixture(scope="module")
def cases() -> Sequence[Solved]:
    problems = [priced_problem(seed) for seed in SEEDS]
    small = [
        problem for problem in problems if sum(1 for _ in brute_force.plans(problem)) <= MOST_PLANS
    ]
    return [
        solved(problem, CONSTRUCTIVE if index >= SEARCHED else ("pesto", *CONSTRUCTIVE))
        for index, problem in enumerate(small)
    ]


def test_no_plan_is_below_the_bound(cases: Sequence[Solved]) -> None:
    tight = 0
    for case in cases:
        bound_us = all_plans_bound_us(case.problem)
        assert bound_us <= case.best_us + ROUNDING
        tight += bound_us >= case.best_us - ROUNDING
    assert tight >= 3


def test_no_strategy_reports_a_gap_that_is_too_small(cases: Sequence[Solved]) -> None:
    for case in cases:
        for result in case.results:
            assert result.lower_bound_us <= case.best_us + ROUNDING


def test_no_strategy_is_better_than_the_best_plan(cases: Sequence[Solved]) -> None:
    """With equal parts alone, a plan has two of them, so the brute force looks at all plans."""
    compared = [case for case in cases if prices_of(case.problem).numbers == (2,)]
    assert len(compared) >= 10
    for case in compared:
        assert case.optimum_us < np.inf
        assert all(result.makespan_us >= case.optimum_us - ROUNDING for result in case.results)


VECTOR, NUMBER = Operand((LARGE,), "float32"), Operand((), "float32")


def by_hand(
    step: Step, times_us: list[float], groups: Sequence[int | None] | None = None
) -> Problem:
    """Return the problem of a step on two GPUs: halves take half the time, all else takes none."""
    devices = tuple(Device(f"GPU:{index}", "GPU", 10**6) for index in range(2))
    links = (("GPU:0", "GPU:1"), ("GPU:1", "GPU:0"))
    machine = Machine(devices, tuple(Link(*ends, CommModel(0.0, 0.0)) for ends in links))
    problem = priced(step.graph(groups), step.specs, machine, np.random.default_rng(0), times_us)
    parts, none = prices_of(problem), np.zeros(1)
    halves = {key: replace(each, ratio=np.array([[0.5]])) for key, each in parts.times.items()}
    free = replace(parts.fallback, min_us=none, us=none, us_per_byte=none)
    return replace(problem, parts=replace(parts, numbers=(2,), times=halves, fallback=free))


def source(step: Step, operand: Operand) -> int:
    return step.add(spec_of("Dequeue", [], [operand]), has_rule=False)


def one_op() -> Problem:
    """One op that takes longer than all others."""
    step = Step()
    step.add(spec_of("Exp", [VECTOR], [VECTOR]), source(step, VECTOR))
    return by_hand(step, [0, 10])


def after_constant() -> Problem:
    """A constant that waits for an op; its parts are small, so the ops that take them wait."""
    step = Step()
    source(step, VECTOR)
    constant = step.add(OpSpec("Const", (("dtype", "float32"),), (), (VECTOR,)))
    step.add(spec_of("Exp", [VECTOR], [VECTOR]), constant)
    step.control_edges.append((0, 1))
    return by_hand(step, [10, 0, 10])


def before_copies() -> Problem:
    """An op for which only an op that may be copied waits; the step needs one of the copies."""
    step = Step()
    step.add(spec_of("Exp", [VECTOR], [VECTOR]), source(step, VECTOR))
    copied = step.add(spec_of("Exp", [NUMBER], [NUMBER]), source(step, NUMBER))
    step.add(spec_of("Loop", [NUMBER], [NUMBER]), copied, has_rule=False)
    step.control_edges.append((1, 3))
    source(step, VECTOR)
    return by_hand(step, [0, 10, 0, 0, 0, 5])


def one_copy_taken() -> Problem:
    """Each part of an op passes on a copy, and the step needs one copy and nothing else."""
    step = Step()
    vector, number = source(step, VECTOR), source(step, NUMBER)
    result = step.add(spec_of("Exp", [VECTOR], [VECTOR]), vector)
    both = step.add(spec_of("IdentityN", [VECTOR, NUMBER], [VECTOR, NUMBER]), result, number)
    step.add(spec_of("Loop", [NUMBER], [NUMBER]), both + 1, has_rule=False)
    source(step, VECTOR)
    return by_hand(step, [0, 0, 10, 10, 0, 10])


def one_copy_waited_for() -> Problem:
    """An op takes one copy of a number that each part of another op passes on."""
    step = Step()
    vector, number = source(step, VECTOR), source(step, NUMBER)
    both = step.add(spec_of("IdentityN", [VECTOR, NUMBER], [VECTOR, NUMBER]), vector, number)
    step.add(spec_of("Exp", [VECTOR], [VECTOR]), both)
    step.add(spec_of("Loop", [NUMBER], [NUMBER]), both + 1, has_rule=False)
    problem = by_hand(step, [0, 0, 10, 0, 10])
    parts = prices_of(problem)
    times = {key: replace(each, ratio=np.array([[0.5, 0.25]])) for key, each in parts.times.items()}
    return replace(problem, parts=replace(parts, numbers=(2, 4), times=times))


def switch_of_a_split_op() -> Problem:
    """A Switch leaves its colocation group if the op that it follows is split."""
    step, predicate = Step(), Operand((), "bool")
    vector, condition = source(step, VECTOR), source(step, predicate)
    result = step.add(spec_of("Exp", [VECTOR], [VECTOR]), vector)
    switch = spec_of("Switch", [VECTOR, predicate], [VECTOR, VECTOR])
    step.add(switch, result, condition, has_rule=False)
    step.add(spec_of("Loop", [VECTOR], [VECTOR]), vector, has_rule=False)
    return by_hand(step, [0, 0, 2, 10, 10], [None, None, 0, 0, 0])


BY_HAND = {
    one_op: 5,
    after_constant: 15,
    before_copies: 10,
    one_copy_taken: 10,
    one_copy_waited_for: 12.5,
    switch_of_a_split_op: 12,
}


@pytest.mark.parametrize("make", BY_HAND)
def test_the_bound_holds_where_a_plan_needs_less_than_it_seems(make: Callable[[], Problem]) -> None:
    problem = make()
    optimum_us = brute_force.optimum_of_plans_us(problem)
    assert optimum_us == BY_HAND[make]
    assert 0 < all_plans_bound_us(problem) <= optimum_us


def test_not_all_parts_come_before_an_op_that_takes_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "after_all_parts", lambda graph, _: graph)
    assert all_plans_bound_us(one_copy_waited_for()) > BY_HAND[one_copy_waited_for]


def test_the_bound_holds_for_parts_of_added_ops_alone() -> None:
    """A gradient of batch normalisation with the channels first has such parts."""
    image, vector = Operand((8, 3, 4, 4), "float32"), Operand((3,), "float32")
    none = Operand((0,), "float32")
    attributes = {"T": "float32", "U": "float32", "data_format": "NCHW", "epsilon": 1e-3}
    gradient = OpSpec(
        "FusedBatchNormGradV3",
        (*attributes.items(), ("is_training", True)),
        (image, image, vector, vector, vector, none),
        (image, vector, vector, none, none),
    )
    step = Step()
    given = [source(step, operand) for operand in gradient.inputs]
    step.add(gradient, step.add(spec_of("Exp", [image], [image]), given[0]), *given[1:])
    problem = by_hand(step, [*[0] * 6, 100, 100])
    parts = prices_of(problem)
    named = {
        index: {each.alternative for each in splits(spec, (2,))}
        for index, spec in enumerate(parts.specs)
    }
    times = {key: each for key, each in parts.times.items() if key[1] in named[key[0]]}
    assert "batch" not in named[parts.specs.index(gradient)]
    problem = replace(problem, parts=replace(parts, times=times))
    for strategy in ("data-parallel", "intra-op"):
        result = run(problem, strategy, Context(Limits(time_limit_s=5)))
        assert result.makespan_us == 50
        assert 0 < all_plans_bound_us(problem) <= 50


def mean_of_ratios(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plans.np, "nanmin", np.nanmean)


def linear_parts(patch: pytest.MonkeyPatch) -> None:
    found = plans._least_ratios
    patch.setattr(
        plans, "_least_ratios", lambda problem: (1 + 0 * found(problem)[0], found(problem)[1])
    )


def parts_as_slow_as_ops(patch: pytest.MonkeyPatch) -> None:
    found = plans._least_ratios
    patch.setattr(
        plans, "_least_ratios", lambda problem: (found(problem)[0], 1 + 0 * found(problem)[1])
    )


def all_ops_needed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        plans,
        "needed_in_all_plans",
        lambda graph, _: (graph, np.ones(graph.num_ops, dtype=np.bool_)),
    )


def ops_on_one_device(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plans, "spread_us", load_us)


def one_device_less(patch: pytest.MonkeyPatch) -> None:
    found = plans.spread_us
    patch.setattr(plans, "spread_us", lambda problem: 2 * found(problem))


@pytest.mark.parametrize(
    "mutant",
    [
        mean_of_ratios,
        linear_parts,
        parts_as_slow_as_ops,
        all_ops_needed,
        ops_on_one_device,
        one_device_less,
    ],
)
def test_wrong_bounds_are_found(
    mutant: Callable[[pytest.MonkeyPatch], None],
    cases: Sequence[Solved],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch)
    assert any(
        all_plans_bound_us(replace(case.problem)) > case.best_us + ROUNDING for case in cases
    )
