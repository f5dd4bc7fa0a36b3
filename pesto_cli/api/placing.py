"""Placements found, compared, simulated, and carried over to changed graphs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pesto_cli.changes import CarriedOver, promised
from pesto_cli.errors import BadInputError, InfeasibleError, NoSolutionError
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.graph import FloatArray
from pesto_cli.memory import unavoidable_shortfall
from pesto_cli.report.memory import memory_text
from pesto_cli.report.tables import shortfall_text
from pesto_cli.result import Comparison, Result, SolveStatus
from pesto_cli.schedule import Schedule
from pesto_cli.simulate import Simulator, replay
from pesto_cli.strategies import STRATEGIES, Search, order
from pesto_cli.strategies.carried_over import start_from
from pesto_cli.strategies.run import judged, run
from pesto_cli.strategies.search import Answer

Placed = Result | Schedule | PlacementFile


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
        makespan and lower bound in us, and the schedule: device, rank, start and end of every op,
        `[num_ops]`.

    Raises:
        BadInputError: no such strategy.
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
    return replace(search, limits=replace(search.limits, **limits))


def compare(
    profile: Profile,
    strategies: Sequence[str] = tuple(STRATEGIES),
    search: Search | None = None,
    **limits: Any,
) -> Comparison:
    """Every strategy's result on the same problem, also what exceeds the memory.

    Args and errors as of `solve`, a search each.

    Example:
        >>> compare(profile, ["single", "expert", "pesto"], time_limit_s=10)
    """
    search = _limited(search or Search(), limits)
    results = tuple(run(profile.problem, name, search) for name in strategies)
    return Comparison(profile.problem, results)


def simulate(profile: Profile, placed: PlacementFile) -> Result:
    """Replay a placement: every device strictly in rank order.

    Raises:
        BadInputError: it is of other ops or devices.

    Example:
        >>> simulate(profile, load("rnnlm.placement.json")).makespan_us
    """
    began = time.perf_counter()
    answer = Answer(replay(profile.problem, placed.match(profile.problem)))
    name = placed.provenance.get("strategy", "placement")
    runtime_s = time.perf_counter() - began
    return judged(profile.problem, name, answer, runtime_s)


def carry_over(profile: Profile, placed: PlacementFile) -> CarriedOver:
    """What is left of a placement on a graph that has changed, to start a search from.

    Example:
        >>> search = Search(warm_start=carry_over(profile, old).placement)

    Raises:
        BadInputError: nothing is.
    """
    carried = start_from(placed, Simulator(profile.problem))
    if not carried.num_by_name:
        devices = [device.name for device in profile.problem.machine.devices]
        raise BadInputError(
            "the placement is of another model or machine: none of its "
            f"{len(placed.names)} ops, such as {next(iter(placed.names), '')!r} on one of "
            f"{', '.join(placed.devices)}, can be put there among the {profile.problem.num_ops} "
            f"ops and on {', '.join(devices)} of the profile; give one of an earlier version."
        )
    return carried


def random_orders_us(
    profile: Profile, placed: PlacementFile, count: int = 20, seed: int = 0
) -> FloatArray:
    """Makespans where only the devices of a placement are applied, `[count]`."""
    device = placed.match(profile.problem).device
    return order.random_orders_us(Simulator(profile.problem), device, count, seed)


def schedule_of(profile: Profile, placed: Placed) -> Schedule:
    """Of a result, a schedule, or a placement, which is replayed."""
    if isinstance(placed, PlacementFile):
        placed = simulate(profile, placed)
    return placed.schedule if isinstance(placed, Result) else placed


def predicted_us(placed: PlacementFile, profile: Profile | None = None) -> float | None:
    """The step time that a placement promises: by a profile, else as its file has it."""
    if profile is not None:
        machine = profile.problem.machine
        return simulate(profile, placed).makespan_us + machine.step_overhead_us
    return promised(placed).step_us
