"""Two groups of families change places."""

from pesto_cli.kernels import kernel
from pesto_cli.refine.draws import Random, below
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.relocation import choose_group, other_device
from pesto_cli.refine.state import Change, State, device_of, put


@kernel
def swap(neighbourhood: Neighbourhood, state: State, random: Random, change: Change) -> None:
    """A group goes to another device, and any second one to where the first came from."""
    num_chosen = choose_group(neighbourhood, random, change)
    lead = change.chosen[below(random, num_chosen)]
    here = device_of(neighbourhood, state, lead)
    there = other_device(neighbourhood, state, random, lead)
    put(neighbourhood, state, change, change.chosen[:num_chosen], there)
    num_chosen = choose_group(neighbourhood, random, change)
    put(neighbourhood, state, change, change.chosen[:num_chosen], here)
