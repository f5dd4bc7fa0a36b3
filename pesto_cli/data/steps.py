"""What real steps took: the measured counterpart of a makespan."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray

NUM_RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Untraced steps of one graph, after the warm-up.

    us: `[num_rounds, num_steps]`. Graphs that are compared run by turns: in each round first all
        steps of one, then all of the next.
    losses: of every step, warm-up included; empty where the step fetches none.
    busy_us: device -> for how long its ops ran in one more step, which was traced.
    """

    us: FloatArray
    losses: tuple[float, ...]
    busy_us: Mapping[str, float]

    @property
    def median_us(self) -> float:
        """The step time."""
        return float(np.median(self.us))

    @property
    def quartiles_us(self) -> tuple[float, float]:
        """Between them lie the middle half of the steps."""
        low, high = np.quantile(self.us, (0.25, 0.75))
        return float(low), float(high)

    @property
    def min_us(self) -> float:
        """The fastest step."""
        return float(self.us.min())


@dataclass(frozen=True)
class SpeedUp:
    """How many times faster, with its 95 % interval."""

    times: float
    low: float
    high: float


def speed_up(base: StepTimes, other: StepTimes) -> SpeedUp:
    """By how much `other` is faster than `base`, which ran in the same rounds.

    Each round gives a ratio, of the median step of `base` to that of `other`: what slowed the
    machine down in this round did so for both. Their median is told, and its percentile interval
    by bootstrap over the rounds (Efron and Tibshirani, An Introduction to the Bootstrap, 13.3).
    """
    ratios = np.median(base.us, axis=1) / np.median(other.us, axis=1)
    random = np.random.default_rng(0)
    drawn = random.choice(ratios, (NUM_RESAMPLES, len(ratios)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(drawn, axis=1), (tail, 1 - tail))
    return SpeedUp(float(np.median(ratios)), float(low), float(high))
