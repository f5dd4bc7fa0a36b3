"""The smallest possible search move."""

from numba import njit

from pesto_cli.refine.draws import below
from pesto_cli.refine.moves import Move
from pesto_cli.refine.state import put


@njit(nogil=True)
def home(neighbourhood, state, random, change):
    """Move a random unit to device 1, if it is allowed there."""
    row = below(random, len(neighbourhood.units))
    put(neighbourhood, state, change, neighbourhood.units[row : row + 1], 1)


HOME = Move(home, weight=0.1)
