"""Placements found, compared, simulated, and carried over to changed graphs."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from pesto_cli.api.arguments import checked, expect
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.result import Comparison, Result, SolveStatus
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.diff import MappedPlacement, stored_prediction
from pesto_cli.errors import BadInputError, InfeasibleError, NoSolutionError
from pesto_cli.evaluation.feasibility import unavoidable_shortfall
from pesto_cli.evaluation.simulator import Simulator, replay
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.files import placement as named_placement
from pesto_cli.report.memory import memory_text
from pesto_cli.report.tables import shortfall_text
from pesto_cli.strategies import STRATEGIES, Context, Strategy, order
from pesto_cli.strategies.context import is_search, parameters, rewrites
from pesto_cli.strategies.placement_mapping import start_from
from pesto_cli.strategies.run import chosen, judged, run

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
        profile: what is to be placed.
        strategy: a name in `STRATEGIES`, or any callable of the form of `Strategy`, such as
            `Pesto(num_nodes=300)`.
        context: limits, warm start and who hears of progress.
        options: of the context (`time_limit_s`, `seed`, `workers`, `deterministic`, `warm_start`),
            and parameters of the strategy (of `pesto`: `num_nodes`, `solver`, ...).

    Returns:
        `makespan_us`, `lower_bound_us`, `gap` (between the two, as a share of the makespan),
        `status`, `runtime_s` and `schedule`: `device`, `rank`, `start_us` and `end_us` of every op,
        `[num_ops]`.

    Raises:
        BadInputError: no such strategy, or a limit is out of range.
        InfeasibleError: it is proved at once that none exists, or the strategy's only one does not
            fit.
        NoSolutionError: the search ended before it found one, and none of either is proved.

    Example:
        >>> solve(profile, time_limit_s=10, workers=4).makespan_us
    """
    problem = profile.problem
    context, values = _settings([strategy], context or Context(), options)
    reason = None if rewrites(chosen(strategy)) else unavoidable_shortfall(problem)
    if reason is not None:
        raise InfeasibleError(f"no placement can fit into memory: {reason}; {LESS_MEMORY}.")
    result = run(problem, strategy, context, **values)
    if result.status is not SolveStatus.OUT_OF_MEMORY:
        return result
    kind = NoSolutionError if is_search(chosen(strategy)) else InfeasibleError
    error = kind(
        f"no placement that {result.strategy} found in {result.runtime_s:.1f} s fits into memory: "
        f"{shortfall_text(problem, result)} (more time may find one that fits); {LESS_MEMORY}."
    )
    error.add_note(memory_text(result.memory_peaks))
    raise error


def _settings(
    strategies: Sequence[str | Strategy], context: Context, options: Mapping[str, Any]
) -> tuple[Context, dict[str, Any]]:
    """The context with the options that it takes, and the others: parameters of the strategies."""
    limits, others = ({field.name for field in fields(kind)} for kind in (Limits, Context))
    own = set().union(*(parameters(chosen(each)) for each in strategies))
    for name in options:
        if name not in limits | others | own:
            raise TypeError(
                f"unexpected keyword argument {name!r}: limits are {_listed(limits)}; parameters "
                f"of what was chosen are {_listed(own) or 'none'}."
            )
    given = [{name: options[name] for name in options.keys() & names} for names in (limits, others)]
    context = replace(context, limits=replace(context.limits, **given[0]), **given[1])
    return context, {name: options[name] for name in options.keys() & own}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


@checked
def compare(
    profile: Profile,
    strategies: Iterable[str | Strategy] | None = None,
    context: Context | None = None,
    **options: Any,
) -> Comparison:
    """Every strategy's result on the same problem, also what exceeds the memory.

    Args:
        profile: what is to be placed.
        strategies: names in `STRATEGIES`, or callables of the form of `Strategy`; all that can be
            used unless given.
        context: of each of them.
        options: as of `solve`, for each of them.

    Raises:
        BadInputError: no such strategy, none at all, or a limit is out of range.

    Example:
        >>> compare(profile, ["single", "expert", "pesto"], time_limit_s=10)
    """
    every = [*STRATEGIES.usable()] if strategies is None else [*strategies]
    if not every:
        raise BadInputError(
            f"no strategy is to be compared; one or more of {', '.join(STRATEGIES)} were expected."
        )
    context, values = _settings(every, context or Context(), options)
    results = [run(profile.problem, each, context, **values) for each in every]
    return Comparison(profile.problem, tuple(results))


@checked
def placement(
    profile: Profile, result: Result, parameters: Mapping[str, Any] | None = None
) -> PlacementFile:
    """A result as a file has it: a device and a rank for every op, by name.

    Args:
        profile: what was solved.
        result: of this profile.
        parameters: those that made it, for the record.

    Raises:
        BadInputError: the result is of another number of ops.

    Example:
        >>> save("rnnlm.placement.json", placement(profile, solve(profile)))
    """
    solution_of(profile, result)
    return named_placement(profile, result, parameters)


@checked
def simulate(profile: Profile, placed: PlacementFile | Result) -> Result:
    """Replay a placement or a result's: every device strictly in rank order.

    Raises:
        BadInputError: it is of other ops or devices.

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
    """What is left of a placement on a graph that has changed, to start a search from.

    Where nothing is left (`num_by_name` is 0), it is a placement like any other.

    Example:
        >>> solve(profile, warm_start=carry_over(profile, old).placement)
    """
    return start_from(placed, Simulator(profile.problem))


@checked
def random_orders_us(
    profile: Profile, placed: PlacementFile, count: int = 20, seed: int = 0
) -> FloatArray:
    """Makespans where only the devices of a placement are applied, `[count]`."""
    device = placed.match(profile.problem).device
    return order.random_orders_us(Simulator(profile.problem), device, count, seed)


def solution_of(profile: Profile, placed: Placed) -> Solution:
    """Of a result, of a schedule of the profile, or of a placement, which is replayed.

    Raises:
        BadInputError: it is of other ops or devices.
    """
    expect("what is placed", placed, Result | Schedule | PlacementFile)
    problem = profile.problem
    if isinstance(placed, PlacementFile):
        return Solution.of(problem, replay(problem, placed.match(problem)))
    found = placed.solution if isinstance(placed, Result) else Solution.of(problem, placed)
    num_placed = found.asked.num_ops if isinstance(placed, Result) else len(placed.device)
    if num_placed != problem.num_ops:
        raise BadInputError(
            f"the schedule is of {num_placed:,} ops and the profile has {problem.num_ops:,}; a "
            "schedule of the same ops was expected: solve(profile) gives one, and expand(profile, "
            "coarse, result) where it is of a coarse profile."
        )
    return found


def strategy_of(placed: Placed) -> str:
    """What made it, as far as it knows."""
    if isinstance(placed, Result):
        return placed.strategy
    provenance = placed.provenance if isinstance(placed, PlacementFile) else {}
    return str(provenance.get("strategy", "placement"))


@checked
def predicted_us(placed: PlacementFile, profile: Profile | None = None) -> float | None:
    """The step time that a placement promises: by a profile, else as its file has it."""
    if profile is not None:
        machine = profile.problem.machine
        return simulate(profile, placed).makespan_us + machine.step_overhead_us
    return stored_prediction(placed).step_us
