"""A profile whose costs are corrected by all measurements of a log."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.steps import StepTimes
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.tuning.correction import untried, with_seen_times
from pesto_cli.tuning.factors import Factors, MeasuredStep, fitted, predicted_us
from pesto_cli.tuning.seen import Ran, placed_on, seen

# The newest measurements to which factors are fitted; a machine may become slower or faster.
MOST_STEPS = 16


@dataclass(frozen=True, eq=False)
class Corrected:
    """Corrected costs.

    profile: the profile with corrected costs. factors: those that the profile contains.
    problem: the problem of the profile without these factors.
    exploring: the profile with times of 0 where nothing was ever measured; None if all was.
    """

    profile: Profile
    factors: Factors
    problem: Problem
    exploring: Profile | None

    def predicted_us(self, file: PlacementFile) -> float:
        """Return the predicted step time of a placement in us."""
        return predicted_us(placed_on(self.problem, file), self.factors)


def corrected(profile: Profile, ran: Iterable[Ran]) -> Corrected:
    """Correct a profile by plans that ran: ops and prices first, then common factors."""
    ran = list(ran)
    times = seen(profile, ran)
    better = with_seen_times(profile, times)
    steps = [
        MeasuredStep(
            placed_on(better.problem, file), measured.times.median_us, _error(measured.times)
        )
        for file, measured in ran[-MOST_STEPS:]
    ]
    factors = fitted(steps)
    scaled = replace(better, problem=factors.scaled(better.problem))
    return Corrected(scaled, factors, better.problem, untried(scaled, times))


def _error(times: StepTimes) -> float:
    """Return the standard error of a median step, as a share of it.

    Steps of one turn depend on each other, so turns are counted, not steps. The quartiles of a
    normal distribution are 1.35 standard deviations apart, and its median varies 1.25 times as
    much as its mean.
    """
    low, high = times.quartiles_us
    num_turns = len(times.us)
    return float(1.25 * (high - low) / 1.35 / np.sqrt(num_turns) / times.median_us)
