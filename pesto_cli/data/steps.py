"""Measured times of real steps, and the speed-up of one graph over another."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray

NUM_RESAMPLES = 10_000
CONFIDENCE = 0.95
# The median of fewer values than these has no interval of this confidence without a distribution.
FEWEST_ROUNDS = 6


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Measured times of the steps of one graph.

    us: `[num_rounds, num_steps_of_a_round]`, times of untraced steps after the warm-up. Graphs that
        are compared alternate: a round runs its steps of one graph, then its steps of the next.
    losses: the loss of every step, warm-up included; empty if the step fetches no loss.
    busy_us: device -> time in which the device ran ops, in one additional step that was traced.
    """

    us: FloatArray
    losses: tuple[float, ...]
    busy_us: Mapping[str, float]

    @property
    def median_us(self) -> float:
        """The median over all steps: the step time."""
        return float(np.median(self.us))

    @property
    def quartiles_us(self) -> tuple[float, float]:
        """The first and the third quartile of the step times in us."""
        low, high = np.quantile(self.us, (0.25, 0.75))
        return float(low), float(high)

    @property
    def min_us(self) -> float:
        """The time of the fastest step."""
        return float(self.us.min())


@dataclass(frozen=True)
class SpeedUp:
    """How many times faster one graph is than another.

    times: ratio of the two step times, above 1 if the second graph is faster.
    low, high: 95 % confidence interval of the ratio.
    """

    times: float
    low: float
    high: float


def speed_up(base: StepTimes, other: StepTimes) -> SpeedUp:
    """Return how many times faster `other` is than `base`; both ran in the same rounds.

    Each round gives one ratio: the median step of `base` over the median step of `other`. A load
    that slows down the machine in a round affects both. The result is the median of the ratios,
    with the percentile interval of a bootstrap over the rounds (Efron and Tibshirani, An
    Introduction to the Bootstrap, 13.3). With fewer than six rounds, this interval is too narrow,
    so it is that of Student's t for the mean of the logarithms; one round allows any speed-up.
    """
    ratios = np.median(base.us, axis=1) / np.median(other.us, axis=1)
    if len(ratios) < FEWEST_ROUNDS:
        return _of_few(ratios)
    random = np.random.default_rng(0)
    drawn = random.choice(ratios, (NUM_RESAMPLES, len(ratios)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(drawn, axis=1), (tail, 1 - tail))
    return SpeedUp(float(np.median(ratios)), float(low), float(high))


def _of_few(ratios: FloatArray) -> SpeedUp:
    """Return the speed-up by the ratios of a few rounds."""
    middle, number = float(np.median(ratios)), len(ratios)
    if number == 1:
        return SpeedUp(middle, 0.0, math.inf)
    from scipy.special import stdtrit

    logs = np.log(ratios)
    width = stdtrit(number - 1, (1 + CONFIDENCE) / 2) * logs.std(ddof=1) / math.sqrt(number)
    low, high = np.exp(logs.mean() + np.array([-width, width]))
    return SpeedUp(middle, min(float(low), middle), max(float(high), middle))
