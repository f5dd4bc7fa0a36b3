"""Adam (Kingma and Ba, ICLR '15, Algorithm 1) on named arrays, which is easy to store and resume.

Spotlight takes "stochastic gradient ascent" steps of an unknown size; Adam needs no step size that
fits the unit of the rewards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from pesto_cli.learned.network import Weights

DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True, eq=False)
class Moments:
    """The decaying means of gradients and of their squares, by the names of the weights."""

    mean: Weights
    square: Weights
    num_steps: int = 0

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Return the moments before the first step."""
        zeros = {name: np.zeros_like(value) for name, value in weights.items()}
        return cls(zeros, zeros)


def step(
    weights: Weights, gradient: Weights, moments: Moments, learning_rate: float
) -> tuple[Mapping[str, np.ndarray], Moments]:
    """Take one step against a gradient; return the new weights and moments."""
    t = moments.num_steps + 1
    mean, square, new = {}, {}, {}
    for name, g in gradient.items():
        mean[name] = DECAY * moments.mean[name] + (1 - DECAY) * g
        square[name] = SQUARE_DECAY * moments.square[name] + (1 - SQUARE_DECAY) * g * g
        unbiased = mean[name] / (1 - DECAY**t)
        scale = np.sqrt(square[name] / (1 - SQUARE_DECAY**t)) + EPSILON
        new[name] = (weights[name] - learning_rate * unbiased / scale).astype(np.float32)
    return new, Moments(mean, square, t)
