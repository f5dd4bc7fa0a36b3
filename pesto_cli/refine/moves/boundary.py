"""Move one op of a cut edge to the device of the other op; the two are on two devices."""

from pesto_cli.kernels import kernel
from pesto_cli.refine.draws import Random, below
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.relocation import any_neighbour, relocate_chosen
from pesto_cli.refine.state import Change, State, device_of

TRIES = 50


@kernel
def boundary(neighbourhood: Neighbourhood, state: State, random: Random, change: Change) -> None:
    """Draw units until one has a cut edge; move that unit to the device of its neighbour.

    If none of `TRIES` draws finds a cut edge, change nothing.
    """
    for _ in range(TRIES):
        unit = neighbourhood.units[below(random, len(neighbourhood.units))]
        other = any_neighbour(neighbourhood, random, unit)
        if other < 0:
            continue
        there = device_of(neighbourhood, state, other)
        if device_of(neighbourhood, state, unit) != there:
            change.chosen[0] = unit
            relocate_chosen(neighbourhood, state, random, change, 1, there)
            return
