"""A search move, as small as it can be."""

from numba import njit

from pesto_cli.refine.draws import below
from pesto_cli.refine.moves import Move
from pesto_cli.refine.state import put


@njit(nogil=True)
def home(neighbourhood, state, random, change):
    """Any unit goes to device 1, if it may."""
    row = below(random, len(neighbourhood.units))
    put(neighbourhood, state, change, neighbourhood.units[row : row + 1], 1)


HOME = Move(home, weight=0.1)
