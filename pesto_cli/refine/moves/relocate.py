"""Move a group of a family to another device."""

from pesto_cli.kernels import kernel
from pesto_cli.refine.draws import Random
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.relocation import choose_group, relocate_chosen
from pesto_cli.refine.state import Change, State


@kernel
def relocate(neighbourhood: Neighbourhood, state: State, random: Random, change: Change) -> None:
    """Move a random group to a random device that is allowed for one of its units."""
    num_chosen = choose_group(neighbourhood, random, change)
    relocate_chosen(neighbourhood, state, random, change, num_chosen)
