"""Random numbers in kernels. Each thread has a generator state of its own."""

import numpy as np
from numpy.typing import NDArray

from pesto_cli.data.graph import FloatArray
from pesto_cli.kernels import kernel

Random = NDArray[np.uint64]


@kernel
def uniform(random: Random) -> float:
    """Return a number in [0, 1), by xorshift64 (Marsaglia, 2003).

    The state is `random`, as numba has only one global state of numpy's generator.
    """
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return np.float64(x >> np.uint64(11)) / 9007199254740992.0


@kernel
def below(random: Random, count: int) -> int:
    """Return a random integer from 0 to count - 1."""
    return int(uniform(random) * count)


@kernel
def draw(random: Random, cumulative: FloatArray) -> int:
    """Return a random row, given the cumulative probabilities of the rows."""
    chance = uniform(random)
    row = 0
    while row < len(cumulative) - 1 and chance >= cumulative[row]:
        row += 1
    return row
