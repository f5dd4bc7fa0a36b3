"""One end of a cut edge, which joins ops on two devices, goes to another device."""

from pesto_cli.kernels import kernel
from pesto_cli.refine.draws import Random, below
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.relocation import any_neighbour, relocate_chosen
from pesto_cli.refine.state import Change, State, device_of

TRIES = 50


@kernel
def boundary(neighbourhood: Neighbourhood, state: State, random: Random, change: Change) -> None:
    """Look for such a unit at random; nothing moves if there are few."""
    for _ in range(TRIES):
        unit = neighbourhood.units[below(random, len(neighbourhood.units))]
        other = any_neighbour(neighbourhood, random, unit)
        if other < 0:
            continue
        if device_of(neighbourhood, state, unit) != device_of(neighbourhood, state, other):
            change.chosen[0] = unit
            relocate_chosen(neighbourhood, state, random, change, 1)
            return
