"""A profile whose costs are corrected by all measurements of a log."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.steps import StepTimes
from pesto_cli.files import PlacementFile, Profile, TuningLog
from pesto_cli.tuning.correction import untried, with_seen_times
from pesto_cli.tuning.factors import Fit, MeasuredStep, fitted, predicted_us
from pesto_cli.tuning.seen import placed_on, seen

# Rounds to whose steps the common factors are fitted, and the standard deviation by which step
# times change from one round to the next, because the machine becomes slower or faster.
NEWEST_ROUNDS, DRIFT = 4, 0.03


@dataclass(frozen=True, eq=False)
class Corrected:
    """Corrected costs.

    profile: the profile with corrected costs. fit: the factors that the profile contains.
    problem: the problem of the profile without these factors.
    exploring: the profile with times of 0 where nothing was ever measured; None if all was.
    """

    profile: Profile
    fit: Fit
    problem: Problem
    exploring: Profile | None

    def predicted_us(self, file: PlacementFile) -> float:
        """Return the predicted step time of a placement in us."""
        return predicted_us(placed_on(self.problem, file), self.fit.factors)


def corrected(log: TuningLog) -> Corrected:
    """Correct the profile of a log by the plans that ran: ops and prices first, then factors."""
    times = seen(log.profile, log.measurements)
    better = with_seen_times(log.profile, times)
    fit = fitted(list(_steps(log, better.problem)))
    scaled = replace(better, problem=fit.factors.scaled(better.problem))
    return Corrected(scaled, fit, better.problem, untried(scaled, times))


def _steps(log: TuningLog, problem: Problem) -> Iterator[MeasuredStep]:
    """Yield the measured steps of the newest rounds; older ones have larger errors."""
    for age, each in enumerate(log.rounds[: -NEWEST_ROUNDS - 1 : -1]):
        for row in each.measured:
            placed = placed_on(problem, log.candidate_of[row.candidate].placement)
            error = float(np.hypot(_error(row.times), DRIFT * age))
            yield MeasuredStep(placed, row.times.median_us, error)


def _error(times: StepTimes) -> float:
    """Return the standard error of a median step, as a share of it.

    Steps of one turn depend on each other, so turns are counted, not steps. The quartiles of a
    normal distribution are 1.35 standard deviations apart, and its median varies 1.25 times as
    much as its mean.
    """
    low, high = times.quartiles_us
    num_turns = len(times.us)
    return float(1.25 * (high - low) / 1.35 / np.sqrt(num_turns) / times.median_us)
