"""Insert an op directly before or after another op of its device."""

import numpy as np

from pesto_cli.kernels import kernel
from pesto_cli.refine.draws import Random, below, uniform
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.state import MAKESPAN, Change, State, shift

TRIES = 50
NEAR = 1e-3  # the starts differ by less than a random share of the makespan, from NEAR to 1


@kernel
def insertion(neighbourhood: Neighbourhood, state: State, random: Random, change: Change) -> None:
    """Move a random op before an op that starts earlier, or after one that starts later."""
    op = below(random, len(state.device))
    makespan_us = state.score[MAKESPAN]
    other = _near(state, random, op, makespan_us * NEAR ** uniform(random))
    if other < 0 or state.key[op] == -np.inf or state.key[other] == -np.inf:
        return
    nudge_us = 1e-9 * makespan_us
    if state.start[other] > state.start[op]:
        nudge_us = -nudge_us
    shift(state, change, op, state.key[op] - state.key[other] + nudge_us)


@kernel
def _near(state: State, random: Random, op: int, within_us: float) -> int:
    """Return a random op of the same device whose start differs from that of `op` by < `within_us`.

    Return -1 if no such op is found in `TRIES` draws.
    """
    for _ in range(TRIES):
        other = below(random, len(state.device))
        here = other != op and state.device[other] == state.device[op]
        if here and abs(state.start[other] - state.start[op]) < within_us:
            return int(other)
    return -1
