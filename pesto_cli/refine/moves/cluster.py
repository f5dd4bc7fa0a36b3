"""Move a connected cluster of units from one device to another."""

import numpy as np

from pesto_cli.kernels import kernel
from pesto_cli.refine.draws import Random, below, uniform
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.relocation import any_neighbour, relocate_chosen
from pesto_cli.refine.state import Change, State, device_of

MEAN_SIZE = 4.0  # mean of the exponential distribution; a cluster has one unit more


@kernel
def cluster(neighbourhood: Neighbourhood, state: State, random: Random, change: Change) -> None:
    """Grow a cluster from a random unit to a size from an exponential distribution, and move it."""
    chosen, seen = change.chosen, change.seen
    chosen[0] = neighbourhood.units[below(random, len(neighbourhood.units))]
    seen[chosen[0]] = True
    here, size = device_of(neighbourhood, state, chosen[0]), 1
    wanted = 1 + np.int64(-MEAN_SIZE * np.log(1.0 - uniform(random)))
    for _ in range(4 * wanted):
        if size == wanted:
            break
        unit = any_neighbour(neighbourhood, random, chosen[below(random, size)])
        if unit < 0 or seen[unit] or neighbourhood.allowed[unit].sum() < 2:
            continue
        if device_of(neighbourhood, state, unit) == here:
            seen[unit] = True
            chosen[size] = unit
            size += 1
    for row in range(size):
        seen[chosen[row]] = False
    relocate_chosen(neighbourhood, state, random, change, size)
