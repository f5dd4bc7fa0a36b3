"""Placements of super-ops, from which the search of whole ops starts (`coarsen/scopes.py`)."""

from collections.abc import Mapping

from pesto_cli.data.limits import Limits
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine import SUPER_OP_STAGES, evaluations_of_super_ops, refine
from pesto_cli.strategies.incumbent import Incumbent
from pesto_cli.strategies.time_shares import shares

# The largest share of the time limit of a search for the placement of super-ops.
MOST_SHARE = 0.4
# The fewest and the most evaluations of each super-op: with fewer, super-ops are not placed; more
# hardly make the placement better.
FEWEST, MOST = 5.0, 200.0


def share_of_super_ops(simulator: Simulator, limits: Limits) -> float:
    """Return the share of a search's time limit in which super-ops are placed; 0 without time."""
    evaluations = MOST_SHARE * evaluations_of_super_ops(simulator, limits)
    return MOST_SHARE * min(1.0, MOST / evaluations) if evaluations >= FEWEST else 0.0


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
