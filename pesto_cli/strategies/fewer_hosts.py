"""A search on several hosts begins on half of them.

Links between hosts are slow, so a step may be faster on fewer hosts, and the moves of a search on
all devices rarely collect the ops there. So the search first uses the faster half of the hosts, and
there first the faster half of these. The answer is a start of the search on all hosts.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np

from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.feasibility import unavoidable_shortfall
from pesto_cli.evaluation.simulator import Simulator, replay
from pesto_cli.sharding.problems import permitted_of_parts
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import on_faster_hosts, on_hosts_used
from pesto_cli.strategies.incumbent import BestProgress, Incumbent
from pesto_cli.strategies.placement_mapping import completed
from pesto_cli.strategies.time_shares import shares

FEWER_HOSTS = "fewer hosts"
"""The name of the answer for fewer hosts, as a start."""
SUFFIX = f", {FEWER_HOSTS}"
"""The end of the names of the stages of a search on fewer hosts."""

# Share of the time limit for the search on fewer hosts.
FEWER_SHARE = 0.3
# Share of a refinement whose start uses fewer hosts, in which it stays on these.
STAY_SHARE = 0.75
# The start does not stay on fewer hosts if the step then takes more than so many times as long.
MOST_LOST = 1.02


class Search(Protocol):
    """A search that may begin with a given solution."""

    def __call__(self, problem: Problem, context: Context, found: Solution | None) -> Solution:
        """Return a solution; found: one that was found on fewer hosts, if any."""


def fewer_hosts_first(search: Search, problem: Problem, context: Context) -> Solution:
    """Search on fewer hosts, then on all.

    The search is on all hosts at once if there is a warm start, or if whole ops cannot fit into the
    memory of fewer.
    """
    fewer = on_faster_hosts(problem)
    has_start = context.warm_start is not None or context.split_start is not None
    if fewer is None or has_start or unavoidable_shortfall(fewer) is not None:
        return search(problem, context, None)
    share, progress = shares(context.limits), BestProgress(context.on_progress)
    bound_us = all_plans_bound_us(problem)

    def on_progress(each: Progress) -> None:
        stage = f"{each.stage.removesuffix(SUFFIX)}{SUFFIX}"
        progress(replace(each, stage=stage, lower_bound_us=bound_us))

    on_fewer = replace(context, limits=share(FEWER_SHARE), on_progress=on_progress)
    found = _on_all_hosts(problem, fewer_hosts_first(search, fewer, on_fewer), bound_us)
    rest = replace(context, limits=share(1 - FEWER_SHARE, 1.0), on_progress=progress)
    return search(problem, rest, found)


def on_hosts_used_first(
    simulator: Simulator, incumbent: Incumbent, limits: Limits
) -> Iterator[tuple[Simulator, Schedule, Limits]]:
    """Yield the parts of a refinement, each with its start: on the hosts used, then on all hosts.

    A few ops on further hosts are first moved to the hosts used.
    """
    share, stay_share = shares(limits), 0.0
    on_hosts, start = _on_hosts_used(simulator, incumbent.schedule)
    if on_hosts is not simulator:
        stay_share = STAY_SHARE
        yield on_hosts, start, share(stay_share)
    yield simulator, incumbent.schedule, share(1 - stay_share, 1.0)


def _on_hosts_used(simulator: Simulator, schedule: Schedule) -> tuple[Simulator, Schedule]:
    """Return a simulator for the hosts that a schedule uses, and the schedule on these alone.

    Both are returned unchanged if the schedule uses all hosts, or loses by leaving some of them.
    """
    fewer = on_hosts_used(simulator.problem, schedule.device)
    if fewer is None:
        return simulator, schedule
    if fewer.allowed[np.arange(fewer.num_ops), schedule.device].all():
        return Simulator(fewer), schedule
    moved = replay(fewer, completed(fewer, schedule.device, schedule.rank))
    short, makespan_us = objective(simulator.problem, schedule)
    loses = objective(fewer, moved) > (short, MOST_LOST * makespan_us)
    return (simulator, schedule) if loses else (Simulator(fewer), moved)


def _on_all_hosts(problem: Problem, found: Solution, bound_us: float) -> Solution:
    """Return a solution for fewer hosts as a solution of the problem with all hosts."""
    if found.serves is None:
        return replace(Solution.of(problem, found.schedule, bound_us), whole=found.whole)
    permitted = permitted_of_parts(problem, found.origin, found.serves)
    solved = replace(found.problem, permitted=permitted)
    return replace(
        found, asked=problem, problem=solved, lower_bound_us=bound_us, notes=(), sampled=None
    )
