"""Finding, comparing and simulating placements, and mapping them to changed graphs."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any

from pesto_cli.api.arguments import checked, expect
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.plan import WHOLE_OPS
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Comparison, Result, SolveStatus
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.diff import MappedPlacement, stored_prediction
from pesto_cli.errors import BadInputError, InfeasibleError, NoSolutionError
from pesto_cli.evaluation import sampling
from pesto_cli.evaluation.feasibility import (
    unavoidable_shortfall,
    unavoidable_shortfall_of_plans,
)
from pesto_cli.evaluation.sampling import check_varies, deviation_of_parts, relative_deviation
from pesto_cli.evaluation.simulator import Simulator, replay
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.files import placement as named_placement
from pesto_cli.files.split_placement import split_by
from pesto_cli.report.memory import memory_text
from pesto_cli.report.tables import shortfall_text
from pesto_cli.sharding.problems import Rewritten
from pesto_cli.strategies import STRATEGIES, Context, Strategy, order
from pesto_cli.strategies.context import is_search, learns, may_rewrite, parameters, splits
from pesto_cli.strategies.placement_mapping import start_from
from pesto_cli.strategies.plan_mapping import split_start
from pesto_cli.strategies.run import chosen, judged, leaving_out, run

Placed = Result | Schedule | PlacementFile

LESS_MEMORY = "reduce the batch size, use devices with more memory, or relax the headroom"


@checked
def solve(
    profile: Profile,
    strategy: str | Strategy = "pesto",
    context: Context | None = None,
    **options: Any,
) -> Result:
    """Find a schedule that fits into memory.

    Args:
        profile: the profile to place.
        strategy: a name in `STRATEGIES`, or any callable that implements `Strategy`, such as
            `Pesto(num_nodes=300)`.
        context: limits, warm start and the callback that receives progress.
        options: fields of the context (`time_limit_s`, `seed`, `workers`, `deterministic`,
            `warm_start`, `split_start`) and parameters of the strategy (for `pesto`:
            `num_nodes`, `solver`, `robust`, ...).

    Returns:
        `makespan_us`, `lower_bound_us`, `gap` (between the two, as a share of the makespan),
        `status`, `runtime_s` and `schedule`: `device`, `rank`, `start_us` and `end_us` of every op,
        `[num_ops]`.

    Raises:
        BadInputError: there is no such strategy, a limit is out of range, or a robust search has
            nothing to sample: the profile has no spread, and the machine no delays.
        InfeasibleError: a quick proof shows that no schedule fits, or the strategy does not search
            and its only schedule does not fit.
        NoSolutionError: the search ended without a schedule that fits, and without a proof that
            none exists.

    Example:
        >>> solve(profile, time_limit_s=10, workers=4).makespan_us
    """
    problem = profile.problem
    context, values = _settings([strategy], context or Context(), options)
    context = with_deviation(profile, context)
    check_can_fit(chosen(strategy), problem)
    result = run(problem, strategy, context, **values)
    if result.status is not SolveStatus.OUT_OF_MEMORY:
        return result
    searches = is_search(chosen(strategy))
    kind, other = (
        (NoSolutionError, "more time") if searches else (InfeasibleError, "another strategy")
    )
    error = kind(
        f"no placement that {result.strategy} found in {result.runtime_s:.1f} s fits into memory: "
        f"{shortfall_text(problem, result)} ({other} may find one that fits); {LESS_MEMORY}."
    )
    error.add_note(memory_text(result.memory_peaks))
    raise error


def check_can_fit(strategy: Strategy, problem: Problem, where: str = "") -> None:
    """Raise InfeasibleError if a quick proof shows that no solution of a strategy fits.

    where: begins the message.
    """
    reason = None
    if not may_rewrite(strategy, problem):
        reason = unavoidable_shortfall(problem)
    elif splits(strategy):
        reason = unavoidable_shortfall_of_plans(problem)
    if reason is not None:
        raise InfeasibleError(f"{where}no placement can fit into memory: {reason}; {LESS_MEMORY}.")


def _settings(
    strategies: Sequence[str | Strategy], context: Context, options: Mapping[str, Any]
) -> tuple[Context, dict[str, Any]]:
    """Split options: return the context with its fields set, and the strategies' parameters."""
    limits, others = ({field.name for field in fields(kind)} for kind in (Limits, Context))
    own = set().union(*(parameters(chosen(each)) for each in strategies))
    for name in options:
        if name not in limits | others | own:
            raise TypeError(
                f"unexpected keyword argument {name!r}: the name of one of the limits "
                f"({_listed(limits)}), or of the chosen strategies' parameters "
                f"({_listed(own) or 'none'}), was expected."
            )
    given = [{name: options[name] for name in options.keys() & names} for names in (limits, others)]
    context = replace(context, limits=replace(context.limits, **given[0]), **given[1])
    return context, {name: options[name] for name in options.keys() & own}


def with_deviation(profile: Profile, context: Context) -> Context:
    """Return a context with the deviations of op times of the profile, unless it has its own."""
    if context.deviation is not None or profile.spread is None:
        return context
    return replace(context, deviation=relative_deviation(profile.problem, profile.spread))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


@checked
def compare(
    profile: Profile,
    strategies: Iterable[str | Strategy] | None = None,
    context: Context | None = None,
    **options: Any,
) -> Comparison:
    """Return the result of every strategy on the same problem, even if it exceeds the memory.

    Args:
        profile: the profile to place.
        strategies: names in `STRATEGIES`, or callables that implement `Strategy`. By default, all
            that can be used for the profile and train no policy.
        context: the context of each strategy.
        options: as for `solve`, for each strategy.

    Raises:
        BadInputError: a strategy is unknown, the list is empty, or a limit is out of range.

    Example:
        >>> compare(profile, ["single", "expert", "pesto"], time_limit_s=10)
    """
    every = without_learning() if strategies is None else [*strategies]
    if not every:
        raise BadInputError(
            "there is no strategy to compare; one or more of "
            f"{', '.join(STRATEGIES)} were expected."
        )
    context, values = _settings(every, context or Context(), options)
    context = with_deviation(profile, context)
    results: list[Result] = []
    for each in every:
        with leaving_out(str(each), []) if strategies is None else nullcontext():
            results.append(run(profile.problem, each, context, **values))
    return Comparison(profile.problem, tuple(results))


def without_learning() -> list[str]:
    """Return the names of all usable strategies that train no policy."""
    return [name for name, each in STRATEGIES.usable().items() if not learns(each)]


def without_choices(profile: Profile) -> Profile:
    """Return the profile without the user's constraints on how ops are split.

    Strategies that place whole ops only can be used for it.
    """
    if not profile.problem.chosen:
        return profile
    return replace(profile, problem=replace(profile.problem, chosen=WHOLE_OPS))


@checked
def placement(
    profile: Profile, result: Result, parameters: Mapping[str, Any] | None = None
) -> PlacementFile:
    """Return the placement file of a result: the device and rank of every op, by name.

    Args:
        profile: the profile that was solved.
        result: a result of this profile.
        parameters: the parameters that made the result, for its provenance.

    Raises:
        BadInputError: the result has another number of ops.

    Example:
        >>> save("rnnlm.placement.json", placement(profile, solve(profile)))
    """
    solution_of(profile, result)
    return named_placement(profile, result, parameters)


@checked
def simulate(profile: Profile, placed: PlacementFile | Result) -> Result:
    """Simulate a placement or the placement of a result: every device runs strictly in rank order.

    Raises:
        BadInputError: the placement is of other ops or devices.

    Example:
        >>> simulate(profile, load("rnnlm.placement.json")).makespan_us
    """
    began = time.perf_counter()
    solution = solution_of(profile, placed)
    if isinstance(placed, Result):
        schedule = replay(solution.problem, solution.schedule.placement)
        solution = replace(solution, schedule=schedule)
    return judged(strategy_of(placed), solution, time.perf_counter() - began)


@checked
def carry_over(profile: Profile, placed: PlacementFile) -> MappedPlacement:
    """Map a placement by op names to a graph that has changed, as a warm start of a search.

    If no op has a known name (`num_by_name` is 0), the result is just some valid placement. If the
    placement splits ops, and the profile has prices of parts, the result also has a start with the
    ops split as before, as far as they are unchanged.

    Example:
        >>> found = carry_over(profile, old)
        >>> solve(profile, warm_start=found.placement, split_start=found.split_start)
    """
    mapped = start_from(placed, Simulator(profile.problem))
    return replace(mapped, split=split_start(placed, profile.problem))


@checked
def random_orders_us(
    profile: Profile, placed: PlacementFile, count: int = 20, seed: int = 0
) -> FloatArray:
    """Return makespans in us of random execution orders on a placement's devices, `[count]`.

    Raises:
        BadInputError: the placement is of other ops or devices, or `count` is below 1.
    """
    if count < 1:
        raise BadInputError(f"count is {count}; a number of 1 or more was expected.")
    solution = solution_of(profile, placed)
    device = solution.schedule.device
    return order.random_orders_us(Simulator(solution.problem), device, count, seed)


@checked
def sampled_makespans_us(
    profile: Profile, placed: PlacementFile | Result, count: int = 100, seed: int = 0
) -> FloatArray:
    """Return makespans in us of a placement with random op times and delays, `[count]`.

    Op times vary as they did when they were measured (`Profile.spread`), and delays of transfers by
    devices that compute are uniform from 0 to twice their mean (`CommModel.wait_us`).

    Raises:
        BadInputError: the placement is of other ops or devices, or nothing varies: the profile has
            no spread, and the machine no delays.

    Example:
        >>> np.quantile(sampled_makespans_us(profile, solve(profile)), 0.9)
    """
    deviation = relative_deviation(profile.problem, profile.spread)
    check_varies(profile.problem, deviation)
    solution = solution_of(profile, placed)
    simulator, placement = Simulator(solution.problem), solution.schedule.placement
    deviation = deviation_of_parts(deviation, solution.origin)
    return sampling.sampled_makespans_us(simulator, placement, deviation, count, seed)


def solution_of(profile: Profile, placed: Placed) -> Solution:
    """Return the solution of a result, a schedule, or a placement, which is replayed.

    Raises:
        BadInputError: it is of other ops or devices than the profile.
    """
    expect("what is placed", placed, Result | Schedule | PlacementFile)
    problem = profile.problem
    if isinstance(placed, PlacementFile):
        return _replayed(profile, placed)
    found = placed.solution if isinstance(placed, Result) else Solution.of(problem, placed)
    num_placed = found.asked.num_ops if isinstance(placed, Result) else len(placed.device)
    if num_placed != problem.num_ops:
        raise BadInputError(
            f"the schedule has {num_placed:,} ops and the profile has {problem.num_ops:,}; a "
            "schedule of the same ops was expected: solve(profile) makes one, and expand(profile, "
            "coarse, result) makes one from a result of a coarse profile."
        )
    return found


def _replayed(profile: Profile, placed: PlacementFile) -> Solution:
    problem = profile.problem
    if not placed.plan:
        return Solution.of(problem, replay(problem, placed.match(problem)))
    split = _split(profile, placed)
    schedule = replay(split.problem, placed.match(split.problem))
    return split.solution(problem, schedule)


def _split(profile: Profile, placed: PlacementFile) -> Rewritten:
    if profile.members is not None:
        raise BadInputError(
            "the placement splits ops into parts, and the profile is coarse; the profile of the "
            "whole graph, with prices of parts, was expected: use the profile that was solved."
        )
    return split_by(placed, profile.problem)


def strategy_of(placed: Placed) -> str:
    """Return the name of the strategy that made a placement; "placement" if it is unknown."""
    if isinstance(placed, Result):
        return placed.strategy
    provenance = placed.provenance if isinstance(placed, PlacementFile) else {}
    return str(provenance.get("strategy", "placement"))


@checked
def predicted_us(placed: PlacementFile, profile: Profile | None = None) -> float | None:
    """Predict the step time in us by a profile.

    Without a profile, return the prediction in the file; None if the file has none.
    """
    if profile is not None:
        machine = profile.problem.machine
        return simulate(profile, placed).makespan_us + machine.step_overhead_us
    return stored_prediction(placed).step_us
