"""Run a strategy, and check its solution before it is returned."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from pesto_cli import kernels
from pesto_cli.bounds import lower_bound_us
from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result, SolveStatus, optimal_up_to_us
from pesto_cli.data.schedule import shortfall_bytes
from pesto_cli.data.solution import PlanSet, Solution
from pesto_cli.errors import BadInputError, UnfitError
from pesto_cli.evaluation.memory import memory_peak
from pesto_cli.evaluation.violations import violations
from pesto_cli.plugins import answered
from pesto_cli.sharding.problems import prices_of
from pesto_cli.strategies import STRATEGIES
from pesto_cli.strategies.context import (
    Context,
    Strategy,
    is_search,
    name_of,
    needs_parts,
    splits,
    with_parameters,
)
from pesto_cli.strategies.warm_up import warm_up

# By rounding, a bound may be above an optimal makespan by less than this share.
BOUND_TOLERANCE = 1e-3


def chosen(strategy: str | Strategy) -> Strategy:
    """Return the strategy with a name in `STRATEGIES`; return any other callable unchanged.

    Raises:
        BadInputError: there is no such strategy, or the object cannot be called.
        EnvironmentFailedError: the strategy is from a plug-in that cannot be used.
    """
    if not isinstance(strategy, str):
        if callable(strategy):
            return strategy
        raise BadInputError(
            f"strategy is {strategy!r}; a name or a function of a problem and a context was "
            f"expected: the names are {', '.join(STRATEGIES)}."
        )
    return STRATEGIES.find(strategy)


def run(problem: Problem, strategy: str | Strategy, context: Context, **values: Any) -> Result:
    """Run a strategy on a problem, and return its checked result.

    Args:
        problem: the problem.
        strategy: a name in `STRATEGIES`, or a strategy.
        context: limits, warm start and progress callback.
        values: values of parameters; names that the strategy does not have are ignored.

    Raises:
        BadInputError: there is no such strategy.
        UnfitError: the strategy cannot be used for this problem.
        EnvironmentFailedError: the strategy is from a plug-in, and cannot be used or failed.
        RuntimeError: the solution violates a rule other than memory.
    """
    if isinstance(strategy, str):
        with STRATEGIES.at_work(strategy) as found:
            return _run(strategy, with_parameters(found, **values), problem, context)
    found = with_parameters(chosen(strategy), **values)
    return _run(name_of(strategy), found, problem, context)


@contextmanager
def leaving_out(name: str, unfit: list[str]) -> Iterator[None]:
    """Note in `unfit` why a strategy is left out, if it cannot be used for the problem."""
    try:
        yield
    except UnfitError as error:
        unfit.append(f"{name} is left out: {error}")


def _run(name: str, strategy: Strategy, problem: Problem, context: Context) -> Result:
    if needs_parts(strategy):
        prices_of(problem)
    if problem.chosen and not splits(strategy):
        raise UnfitError(
            f"the constraints split {len(problem.chosen.choices):,} ops, and strategy {name!r} "
            "places whole ops only; a strategy that splits was expected, such as data-parallel."
        )
    if is_search(strategy) or not kernels.are_cached():
        warm_up()  # otherwise the strategy loads the few kernels that it needs from the cache
    began = time.perf_counter()
    solution = answered(Solution, strategy(problem, context))
    runtime_s = time.perf_counter() - began
    is_interrupted = context.limits.stop.is_set()
    return judged(name, solution, runtime_s, interrupted=is_interrupted)


def judged(name: str, solution: Solution, runtime_s: float, *, interrupted: bool = False) -> Result:
    """Check a solution against all rules, and return it with its status and bound.

    Args:
        name: name of the strategy.
        solution: solution of the given problem, or of one with a rewritten graph.
        runtime_s: runtime of the strategy.
        interrupted: whether a stop was requested.

    Raises:
        RuntimeError: the solution violates a rule other than memory: a bug in the strategy.
    """
    _check(name, solution)
    problem, schedule, bounded = solution.problem, solution.schedule, _bounded(solution)
    short = np.flatnonzero(shortfall_bytes(problem, schedule)).tolist()
    if short:
        status = SolveStatus.OUT_OF_MEMORY
    elif schedule.makespan_us <= optimal_up_to_us(bounded.lower_bound_us):
        status = SolveStatus.OPTIMAL
    else:
        status = SolveStatus.INTERRUPTED if interrupted else SolveStatus.FEASIBLE
    peaks = tuple(memory_peak(problem, schedule, device) for device in short)
    return Result(name, status, bounded, runtime_s, peaks)


def _bounded(solution: Solution) -> Solution:
    """Return the solution with the best lower bound that is valid for all allowed plans.

    A bound on the schedules of one graph is not valid for other graphs. So if ops may be split, or
    the graph was rewritten, only a bound for all plans counts. Without one, the bound of a graph
    that was rewritten in another way is 0.
    """
    bound_us, holds_for = solution.lower_bound_us, solution.bound_holds_for
    if solution.asked.parts is not None:
        given_us = bound_us if holds_for is PlanSet.ALL_PLANS else 0.0
        bound_us, holds_for = max(given_us, all_plans_bound_us(solution.asked)), PlanSet.ALL_PLANS
    elif solution.is_rewritten and holds_for is not PlanSet.ALL_PLANS:
        bound_us, holds_for = 0.0, PlanSet.ALL_PLANS
    elif not (solution.is_rewritten or bound_us):
        bound_us, holds_for = lower_bound_us(solution.asked), PlanSet.ASKED_GRAPH
    bound_us = min(bound_us, solution.makespan_us)
    return replace(solution, lower_bound_us=bound_us, bound_holds_for=holds_for)


def _check(name: str, solution: Solution) -> None:
    problem, schedule = solution.problem, solution.schedule
    found = violations(problem, schedule)
    broken = [f"{each.rule}: {each.message}" for each in found if each.rule != "memory"]
    if solution.is_rewritten:
        broken += _changed_terms(solution)
    broken += [*_other_choices(solution), *_wrong_bound(solution)]
    if isinstance(solution.notes, str):
        broken.append("notes: a sequence of sentences was expected, not a string")
    if broken:
        rules = "1 rule" if len(broken) == 1 else f"{len(broken)} rules"
        raise RuntimeError(f"{name} broke {rules}: {broken[0]}")


def _wrong_bound(solution: Solution) -> Iterator[str]:
    """Yield why a lower bound cannot be one."""
    bound_us, makespan_us = solution.lower_bound_us, solution.makespan_us
    if not 0 <= bound_us < math.inf:
        yield f"bound: {bound_us} us; a finite number of 0 or more was expected"
    elif not solution.objective[0] and bound_us > makespan_us * (1 + BOUND_TOLERANCE):
        yield f"bound: {bound_us:g} us is above the makespan of the solution, {makespan_us:g} us"


def _other_choices(solution: Solution) -> Iterator[str]:
    """Yield the ops that are not split as the user's constraints say."""
    found = {} if solution.plan is None else solution.plan.choices
    for name, choice in solution.asked.chosen.choices.items():
        if found.get(name) != choice:
            yield f"chosen: op {name!r} is not split by {choice.alternative!r} as it was chosen"


def _changed_terms(solution: Solution) -> list[str]:
    """Return in which terms a rewritten problem is less strict than the given one; else empty."""
    asked, problem, origin = solution.asked, solution.problem, solution.origin
    if problem.machine != asked.machine or problem.headroom > asked.headroom:
        return ["machine: another machine or more memory than the problem has"]
    if len(origin) != problem.num_ops or not ((origin >= -1) & (origin < asked.num_ops)).all():
        return [f"origin: {len(origin)} entries for {problem.num_ops} ops, or one out of range"]
    parts = np.flatnonzero(origin >= 0)
    forbidden = ~asked.permitted[origin[parts], solution.schedule.device[parts]]
    return [
        f"permitted: op {problem.graph.names[op]!r} is where {asked.graph.names[origin[op]]!r} "
        "may not be"
        for op in parts[forbidden].tolist()
    ]
