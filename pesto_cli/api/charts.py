"""Reports and charts."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pesto_cli.api.arguments import checked, expect
from pesto_cli.api.coarsening import merge_log
from pesto_cli.api.placing import (
    Placed,
    compare,
    simulate,
    solution_of,
    strategy_of,
    without_choices,
)
from pesto_cli.bounds import lower_bound_us
from pesto_cli.coarsen import Round
from pesto_cli.coarsen import coarsen as coarsen_problem
from pesto_cli.data.load import Load, whole_load
from pesto_cli.data.result import Result
from pesto_cli.errors import BadInputError, about
from pesto_cli.evaluation.critical_path import schedule_critical_path
from pesto_cli.evaluation.memory import held_over_time
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.report.families import Families
from pesto_cli.report.page.page import page_data, report_page, vega
from pesto_cli.report.page.shown import Coarse, Shown
from pesto_cli.report.pictures.layers import layers_chart
from pesto_cli.report.pictures.memory import MOST_STEPS, memory_chart
from pesto_cli.report.pictures.merges import merges_chart
from pesto_cli.report.pictures.spans import MOST_BARS, Drawn
from pesto_cli.report.pictures.timeline import timeline_chart

# Strategies that a report compares placements with, and the size of the coarse graph that it draws.
REPORT_BASELINES = ("single", "expert")
REPORT_BASELINE_LIMIT_S = 1.0
REPORT_NODES = 120


@checked
def report(
    profile: Profile, placements: Mapping[str, PlacementFile | Result], title: str = ""
) -> str:
    """Return an HTML page that shows placements of a profile.

    Each placement is compared with the strategies `single` and `expert`. These are solved for at
    most `REPORT_BASELINE_LIMIT_S` each, unless they made one of the placements. A placement with
    split ops is also compared with the best step with whole ops that the search found, or with the
    best one on the page if none is stored.

    Args:
        profile: the profile of the placements.
        placements: placements or results, by their names on the page.
        title: the title of the page.

    Raises:
        BadInputError: there is no placement, or a placement is of other ops or devices.

    Example:
        >>> save("rnnlm.html", report(profile, {"pesto": solve(profile)}))
    """
    if not placements:
        raise BadInputError(
            "there is no placement to show; one or more were expected, such as {'mine': placement}."
        )
    for name in placements:
        expect("the name of a placement", name, str)
    problem = profile.problem
    known = set(map(strategy_of, placements.values()))
    with ThreadPoolExecutor(1) as beside:
        # The bound and the baselines hardly hold the interpreter lock. `simulate` needs the bound.
        beside.submit(lower_bound_us, problem)
        missing = [name for name in REPORT_BASELINES if name not in known]
        compared = beside.submit(_baselines, profile, missing)
        coarsening = coarsen_problem(problem, REPORT_NODES)
        vega()  # is cached for the page
        shown = [_shown(profile, name, placed) for name, placed in placements.items()]
        data = page_data(problem, shown, Coarse(coarsening.problem, coarsening.node_of_op))
    result_of = {each.result.strategy: each.result for each in shown} | compared.result()
    baselines = [result_of[name] for name in REPORT_BASELINES]
    return report_page(title, profile, shown, baselines, data)


def _baselines(profile: Profile, names: Sequence[str]) -> dict[str, Result]:
    """Return the results of strategies that a report compares placements with, by name."""
    limit_s, unsplit = REPORT_BASELINE_LIMIT_S, without_choices(profile)
    return {name: compare(unsplit, [name], time_limit_s=limit_s)[0] for name in names}


def _shown(profile: Profile, name: str, placed: PlacementFile | Result) -> Shown:
    """Return what a page shows of a placement."""
    with about(f"placement {name!r}"):
        result = simulate(profile, placed)
    held = held_over_time(result.problem, result.schedule)
    path = schedule_critical_path(result.problem, result.schedule)
    return Shown(name, result, held, path, *_origin(profile, placed), _whole_load(placed))


def _origin(profile: Profile, placed: PlacementFile | Result) -> tuple[Mapping[str, Any], str]:
    """Return the provenance of a placement and the hash of its file; a result has no hash ("")."""
    if isinstance(placed, Result):
        return {"strategy": placed.strategy, "profile_hash": profile.file_hash}, ""
    return placed.provenance, placed.file_hash


def _whole_load(placed: PlacementFile | Result) -> Load | None:
    """Return the load of the best schedule with whole ops, if ops are split and it is known."""
    if isinstance(placed, PlacementFile):
        return placed.whole_load
    return whole_load(placed.solution)


@checked
def timeline(
    profile: Profile,
    placed: Placed,
    *,
    title: str = "",
    width: int | str = 900,
    most_bars: int = MOST_BARS,
) -> Any:
    """Draw a timeline of devices and links with the schedule's critical path, as an altair chart.

    width: in pixels. most_bars: if there are more bars, neighbouring short ones are drawn as one.

    Example:
        >>> timeline(profile, solve(profile), width=700)
    """
    found = solution_of(profile, placed)
    path = schedule_critical_path(found.problem, found.schedule)
    families = Families.of_solution(found)
    added = {} if families is None else families.added
    drawn = Drawn(found.problem, found.schedule, path, most_bars, added)
    return timeline_chart(drawn, title=title, width=width)


@checked
def memory(
    profile: Profile,
    placed: Placed,
    *,
    title: str = "memory held, as a share of the usable memory",
    width: int | str = 900,
    most_steps: int = MOST_STEPS,
) -> Any:
    """Draw the memory of every device over time, as a share of its capacity, as an altair chart.

    width: in pixels. most_steps: the largest number of steps of the curve of each device.

    Example:
        >>> save("memory.svg", memory(profile, load("rnnlm.placement.json")))
    """
    if most_steps < 1:
        raise BadInputError(f"most_steps is {most_steps}; a number of 1 or more was expected.")
    found = solution_of(profile, placed)
    held = held_over_time(found.problem, found.schedule)
    return memory_chart(
        found.problem, found.schedule, held, title=title, width=width, most_steps=most_steps
    )


@checked
def layers(
    profile: Profile,
    placed: Placed,
    *,
    title: str = "",
    width: int | str = 900,
    notes: Sequence[str] | None = None,
) -> Any:
    """Draw a graph of at most some hundred ops by height and device, as an altair chart.

    width: in pixels. notes: a text for every op.

    Example:
        >>> coarse = coarsen(profile, 60)
        >>> layers(coarse, solve(coarse, time_limit_s=5))
    """
    found = solution_of(profile, placed)
    if notes is not None and len(notes) != found.problem.num_ops:
        raise BadInputError(
            f"there are {len(notes)} notes; one for each of the {found.problem.num_ops} ops was "
            "expected."
        )
    return layers_chart(found.problem, found.schedule.device, title=title, width=width, notes=notes)


@checked
def merges(profile: Profile, round_: Round, *, title: str = "") -> Any:
    """Draw the merges of a round of `coarsen`, for at most some tens of nodes, as an altair chart.

    Example:
        >>> merges(profile, rounds[0])
    """
    return merges_chart(merge_log(profile, round_), title=title)
