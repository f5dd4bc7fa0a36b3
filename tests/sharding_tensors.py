"""Hypothesis strategies of shapes and tensors for the cases of sharding rules."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from sharding_ops import Array

# Axes of size 1 cannot be split: an example shrinks to sizes of 2.
sizes = st.sampled_from((2, 3, 1, 4, 5))


def shapes(min_rank: int = 0, max_rank: int = 4) -> SearchStrategy[tuple[int, ...]]:
    """Return shapes with sizes of 1 to 5."""
    ranks = st.integers(min_rank, max_rank)
    return ranks.flatmap(lambda rank: st.tuples(*[sizes] * rank))


def tensors(
    shape: tuple[int, ...], dtype: str = "float64", low: float = -3, high: float = 3
) -> SearchStrategy[Array]:
    """Return tensors of uniformly distributed numbers from `low` to `high`, or of booleans."""

    def drawn(seed: int) -> Array:
        generator = np.random.default_rng(seed)
        if dtype == "bool":
            return np.asarray(generator.random(shape) < 0.5)
        if "int" in dtype:
            return np.asarray(generator.integers(int(low), int(high) + 1, shape)).astype(dtype)
        return np.asarray(generator.uniform(low, high, shape)).astype(dtype)

    return st.integers(0, 10**6).map(drawn)


@st.composite
def part_sizes(draw: st.DrawFn, size: int | None) -> tuple[int, ...]:
    """Draw the sizes of two to four parts of a factor with `size` units; uneven, often 1."""
    if size is None:
        return (1,) * draw(st.integers(2, 4))
    cuts = draw(st.sets(st.integers(1, size - 1), min_size=1, max_size=3))
    ends = [0, *sorted(cuts), size]
    return tuple(end - start for start, end in pairwise(ends))
