"""Placements of super-ops, from which the search of whole ops starts (`coarsen/scopes.py`)."""

from collections.abc import Mapping
from dataclasses import replace

from pesto_cli.data.limits import Limits
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine import SUPER_OP_STAGES, evaluations_of_super_ops, refine
from pesto_cli.strategies.incumbent import Incumbent
from pesto_cli.strategies.time_shares import shares

# The share of the time limit of a search, for the placement of super-ops from all starts.
SUPER_OPS_SHARE = 0.4
# Super-ops are not placed if there is time for fewer evaluations of each.
FEWEST_EVALUATIONS = 5.0


def has_time_for_super_ops(simulator: Simulator, limits: Limits) -> bool:
    """Whether a search with these limits has enough time to place super-ops."""
    own = replace(limits, time_limit_s=SUPER_OPS_SHARE * limits.time_limit_s)
    return evaluations_of_super_ops(simulator, own) >= FEWEST_EVALUATIONS


def placed_super_ops(
    simulator: Simulator, starts: Mapping[str, Schedule], limits: Limits, incumbent: Incumbent
) -> dict[str, Schedule]:
    """Place super-ops from each start, one after the other, and return the schedules by name.

    limits: of all searches together; each start gets an equal share.
    incumbent: gets the schedules, too.
    """
    share, found = shares(limits), dict[str, Schedule]()
    for number, (begin, start) in enumerate(starts.items(), start=1):
        name = f"super-ops from {begin}"
        incumbent.begin(name)
        found[name] = refine(
            simulator,
            [start],
            share(1 / len(starts), number / len(starts)),
            lower_bound_us=incumbent.lower_bound_us,
            stages=SUPER_OP_STAGES,
        )
        incumbent.offer(name, found[name])
    return found
