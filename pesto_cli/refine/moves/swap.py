"""Exchange the devices of two groups."""

from pesto_cli.kernels import kernel
from pesto_cli.refine.draws import Random, below
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.relocation import choose_group, other_device
from pesto_cli.refine.state import Change, State, device_of, put

# A second group on a third device is drawn again, at most so many times.
TRIES = 10


@kernel
def swap(neighbourhood: Neighbourhood, state: State, random: Random, change: Change) -> None:
    """Move a random group to another device, and a second group to the first group's device."""
    num_chosen = choose_group(neighbourhood, random, change)
    lead = change.chosen[below(random, num_chosen)]
    here = device_of(neighbourhood, state, lead)
    there = other_device(neighbourhood, state, random, lead)
    put(neighbourhood, state, change, change.chosen[:num_chosen], there)
    for _ in range(TRIES):
        num_chosen = choose_group(neighbourhood, random, change)
        where = device_of(neighbourhood, state, change.chosen[0])
        if where in (here, there):
            break
    put(neighbourhood, state, change, change.chosen[:num_chosen], here)
