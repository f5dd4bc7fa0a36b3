"""Placements found, compared, simulated, and carried over to changed graphs."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from pesto_cli.api.arguments import checked, expect
from pesto_cli.changes import CarriedOver, promised
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.result import Comparison, Result, SolveStatus
from pesto_cli.data.schedule import Schedule
from pesto_cli.errors import BadInputError, InfeasibleError, NoSolutionError
from pesto_cli.evaluation.memory import unavoidable_shortfall
from pesto_cli.evaluation.simulator import Simulator, replay
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.files import placement as named_placement
from pesto_cli.report.memory import memory_text
from pesto_cli.report.tables import shortfall_text
from pesto_cli.strategies import STRATEGIES, Search, order
from pesto_cli.strategies.carried_over import start_from
from pesto_cli.strategies.run import judged, run
from pesto_cli.strategies.search import Answer

Placed = Result | Schedule | PlacementFile


@checked
def solve(
    profile: Profile, strategy: str = "pesto", search: Search | None = None, **limits: Any
) -> Result:
    """Find a schedule that fits into memory.

    Args:
        profile: what is to be placed.
        strategy: a name in `STRATEGIES`.
        search: how to search.
        limits: in place of the search's: `time_limit_s`, `seed`, `workers`, `deterministic`.

    Returns:
        `makespan_us`, `lower_bound_us`, `gap` (between the two, as a share of the makespan),
        `status`, `runtime_s` and `schedule`: `device`, `rank`, `start_us` and `end_us` of every op,
        `[num_ops]`.

    Raises:
        BadInputError: no such strategy, or a limit is out of range.
        InfeasibleError: none exists, or the strategy's only one does not fit.
        NoSolutionError: the search ended before it found one, and none of either is proved.

    Example:
        >>> solve(profile, time_limit_s=10, workers=4).makespan_us
    """
    problem = profile.problem
    result = run(problem, strategy, _limited(search or Search(), limits))
    if result.status is not SolveStatus.OUT_OF_MEMORY:
        return result
    reason = unavoidable_shortfall(problem)
    kind = NoSolutionError if reason is None and strategy == "pesto" else InfeasibleError
    error = kind(
        f"no placement that {strategy} found in {result.runtime_s:.1f} s fits into memory: "
        f"{shortfall_text(problem, result)} ({reason or 'more time may find one that fits'}); "
        "reduce the batch size, use devices with more memory, or relax the headroom."
    )
    error.add_note(memory_text(result.memory_peaks))
    raise error


def _limited(search: Search, limits: Mapping[str, Any]) -> Search:
    known, of_search = ([field.name for field in fields(kind)] for kind in (Limits, Search))
    for name in limits:
        if name not in known:
            raise TypeError(
                f"unexpected keyword argument {name!r}: limits are {', '.join(known)}, and "
                f"search=Search(num_nodes=...) has {', '.join(of_search[1:])}."
            )
    return replace(search, limits=replace(search.limits, **limits))


@checked
def compare(
    profile: Profile,
    strategies: Iterable[str] = tuple(STRATEGIES),
    search: Search | None = None,
    **limits: Any,
) -> Comparison:
    """Every strategy's result on the same problem, also what exceeds the memory.

    Args:
        profile: what is to be placed.
        strategies: names in `STRATEGIES`.
        search: how to search, for each of them.
        limits: as of `solve`, for each of them.

    Raises:
        BadInputError: no such strategy, none at all, or a limit is out of range.

    Example:
        >>> compare(profile, ["single", "expert", "pesto"], time_limit_s=10)
    """
    search = _limited(search or Search(), limits)
    results = tuple(run(profile.problem, name, search) for name in strategies)
    if not results:
        raise BadInputError(
            f"no strategy is to be compared; one or more of {', '.join(STRATEGIES)} were expected."
        )
    return Comparison(profile.problem, results)


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
    _check_size(profile, result.schedule)
    return named_placement(profile, result, parameters)


@checked
def simulate(profile: Profile, placed: PlacementFile | Result) -> Result:
    """Replay a placement or a result's: every device strictly in rank order.

    Raises:
        BadInputError: it is of other ops or devices.

    Example:
        >>> simulate(profile, load("rnnlm.placement.json")).makespan_us
    """
    placed = by_name(profile, placed)
    began = time.perf_counter()
    answer = Answer(replay(profile.problem, placed.match(profile.problem)))
    runtime_s = time.perf_counter() - began
    return judged(profile.problem, strategy_of(placed), answer, runtime_s)


@checked
def carry_over(profile: Profile, placed: PlacementFile) -> CarriedOver:
    """What is left of a placement on a graph that has changed, to start a search from.

    Where nothing is left (`num_by_name` is 0), it is a placement like any other.

    Example:
        >>> search = Search(warm_start=carry_over(profile, old).placement)
    """
    return start_from(placed, Simulator(profile.problem))


@checked
def random_orders_us(
    profile: Profile, placed: PlacementFile, count: int = 20, seed: int = 0
) -> FloatArray:
    """Makespans where only the devices of a placement are applied, `[count]`."""
    device = placed.match(profile.problem).device
    return order.random_orders_us(Simulator(profile.problem), device, count, seed)


def schedule_of(profile: Profile, placed: Placed) -> Schedule:
    """Of a result, a schedule, or a placement, which is replayed.

    Raises:
        BadInputError: it is of other ops.
    """
    if isinstance(placed, PlacementFile):
        placed = simulate(profile, placed)
    schedule = placed.schedule if isinstance(placed, Result) else placed
    _check_size(profile, schedule)
    return schedule


def by_name(profile: Profile, placed: PlacementFile | Result) -> PlacementFile:
    """A placement as it is, and a result's.

    Raises:
        BadInputError: it is neither, or of other ops.
    """
    expect("what is placed", placed, PlacementFile | Result)
    return placement(profile, placed) if isinstance(placed, Result) else placed


def strategy_of(placed: Placed) -> str:
    """What made it, as far as it knows."""
    if isinstance(placed, Result):
        return placed.strategy
    provenance = placed.provenance if isinstance(placed, PlacementFile) else {}
    return str(provenance.get("strategy", "placement"))


def _check_size(profile: Profile, schedule: Schedule) -> None:
    num_ops, num_placed = profile.problem.num_ops, len(schedule.device)
    if num_placed != num_ops:
        raise BadInputError(
            f"the schedule is of {num_placed:,} ops and the profile has {num_ops:,}; a schedule of "
            "the same ops was expected: solve(profile) gives one, and expand(profile, coarse, "
            "result) where it is of a coarse profile."
        )


@checked
def predicted_us(placed: PlacementFile, profile: Profile | None = None) -> float | None:
    """The step time that a placement promises: by a profile, else as its file has it."""
    if profile is not None:
        machine = profile.problem.machine
        return simulate(profile, placed).makespan_us + machine.step_overhead_us
    return promised(placed).step_us
