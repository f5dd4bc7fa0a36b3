"""Reports and charts."""

from collections.abc import Mapping
from typing import Any

from pesto_cli.api.coarsening import considered
from pesto_cli.api.placing import Placed, compare, schedule_of, simulate
from pesto_cli.causes import critical_chain
from pesto_cli.coarsen import Round
from pesto_cli.coarsen import coarsen as coarsen_problem
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.memory import held_over_time
from pesto_cli.report.page.page import report_page
from pesto_cli.report.page.shown import Coarse, Shown
from pesto_cli.report.pictures.layers import layers_chart
from pesto_cli.report.pictures.memory import memory_chart
from pesto_cli.report.pictures.merges import merges_chart
from pesto_cli.report.pictures.timeline import timeline_chart

# What a report compares placements with, and the size of the coarse graph that it draws.
REPORT_BASELINES = ("single", "expert")
REPORT_NODES = 120


def report(profile: Profile, placements: Mapping[str, PlacementFile], title: str = "") -> str:
    """A page of HTML that shows placements of a profile, by the names that they are to have.

    Each is compared with `single` and `expert`, which are solved unless one of them is by these.
    """
    problem = profile.problem
    shown = []
    for name, placed in placements.items():
        result = simulate(profile, placed)
        held = held_over_time(problem, result.schedule)
        chain = critical_chain(problem, result.schedule)
        shown.append(Shown(name, result, held, chain, placed.provenance, placed.file_hash))
    given = {each.result.strategy: each.result for each in shown}
    baselines = [given.get(name) or compare(profile, [name])[0] for name in REPORT_BASELINES]
    coarsening = coarsen_problem(problem, REPORT_NODES)
    coarse = Coarse(coarsening.problem, coarsening.node_of_op)
    return report_page(title, profile, shown, baselines, coarse)


def timeline(profile: Profile, placed: Placed, **options: Any) -> Any:
    """What runs when on devices and links, with the critical chain, as an altair chart.

    options: `title`, `width` in pixels, `most_bars`.

    Example:
        >>> timeline(profile, solve(profile), width=700)
    """
    schedule = schedule_of(profile, placed)
    chain = critical_chain(profile.problem, schedule)
    return timeline_chart(profile.problem, schedule, chain, **options)


def memory(profile: Profile, placed: Placed, **options: Any) -> Any:
    """What every device holds over time, as a share of what it may, as an altair chart.

    options: `title`, `width` in pixels, `most_steps` in time.

    Example:
        >>> save("memory.svg", memory(profile, load("rnnlm.placement.json")))
    """
    schedule = schedule_of(profile, placed)
    held = held_over_time(profile.problem, schedule)
    return memory_chart(profile.problem, schedule, held, **options)


def layers(profile: Profile, placed: Placed, **options: Any) -> Any:
    """A graph of some hundred ops at most by height and device, as an altair chart.

    options: `title`, `width` in pixels, `notes`: a text for every op.

    Example:
        >>> coarse = coarsen(profile, 60)
        >>> layers(coarse, solve(coarse, time_limit_s=5))
    """
    return layers_chart(profile.problem, schedule_of(profile, placed).device, **options)


def merges(profile: Profile, round_: Round, **options: Any) -> Any:
    """What a round of `coarsen` merged of some tens of nodes at most, as an altair chart.

    options: `title`.

    Example:
        >>> merges(profile, rounds[0])
    """
    return merges_chart(considered(profile, round_), **options)
