"""Random numbers within kernels, each thread from a state of its own."""

import numpy as np
from numpy.typing import NDArray

from pesto_cli.data.graph import FloatArray
from pesto_cli.kernels import kernel

Random = NDArray[np.uint64]


@kernel
def uniform(random: Random) -> float:
    """In [0, 1), by xorshift64 (Marsaglia, 2003); numpy's generator in numba is one for all."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return np.float64(x >> np.uint64(11)) / 9007199254740992.0


@kernel
def below(random: Random, count: int) -> int:
    """One of 0 to count - 1."""
    return int(uniform(random) * count)


@kernel
def draw(random: Random, cumulative: FloatArray) -> int:
    """A row by its chance: its part of `cumulative`, which ascends to 1."""
    chance = uniform(random)
    row = 0
    while row < len(cumulative) - 1 and chance >= cumulative[row]:
        row += 1
    return row
