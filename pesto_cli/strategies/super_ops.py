"""Placements of super-ops, from which the search of whole ops starts (`coarsen/scopes.py`)."""

from collections.abc import Mapping
from dataclasses import replace

from pesto_cli.data.limits import Limits
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine import SUPER_OP_STAGES, evaluations_of_super_ops, refine
from pesto_cli.strategies.incumbent import Incumbent

# The largest share of the time of a search for the placement of super-ops from all starts.
MOST_SHARE = 0.4
# How many placements are evaluated for each super-op, from all starts together. If there is time
# for fewer than FEWEST, super-ops are not placed. The search ends after MOST, because later
# evaluations hardly improve the placement.
FEWEST, MOST = 5.0, 200.0


def share_of_super_ops(simulator: Simulator, limits: Limits) -> float:
    """Return the share of a search's time in which super-ops are placed.

    It is 0 if there is time for fewer than `FEWEST` evaluations of each super-op.

    limits: those of the search with its starts, so the share is the same in each run.
    """
    evaluations = MOST_SHARE * evaluations_of_super_ops(simulator, limits)
    return MOST_SHARE * min(1.0, MOST / evaluations) if evaluations >= FEWEST else 0.0


def placed_super_ops(
    simulator: Simulator, starts: Mapping[str, Schedule], limits: Limits, incumbent: Incumbent
) -> dict[str, Schedule]:
    """Place super-ops from each start, one after the other, and return the schedules by name.

    limits: of all searches together; each start gets an equal share.
    incumbent: gets the schedules, too. If it is optimal, no further search begins.
    """
    own = replace(limits, time_limit_s=limits.time_limit_s / len(starts))
    found = dict[str, Schedule]()
    for start_name, start in starts.items():
        if incumbent.is_optimal or limits.stop.is_set():
            break
        name = f"super-ops from {start_name}"
        found[name] = _placed(simulator, name, start, own, incumbent)
    return found


def _placed(
    simulator: Simulator, name: str, start: Schedule, limits: Limits, incumbent: Incumbent
) -> Schedule:
    incumbent.begin(name)
    return refine(
        simulator,
        [start],
        limits,
        lower_bound_us=incumbent.lower_bound_us,
        stages=SUPER_OP_STAGES,
        on_incumbent=lambda _, schedule: incumbent.offer(name, schedule),
    )
