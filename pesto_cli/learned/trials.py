"""Rewards of all sampled placements of a graph, and how much better than them a placement is.

In Spotlight (Eq. 1), the reward of a placement counts from the average of all trials so far, and in
HeteroG (Section 4.1.3) from a moving average. Here both count from a moving average
(`Policy.new_share`). After some learning, nearly all placements are better than the average of all
trials, so a policy would learn little from the differences between them. Both papers leave the
unit of time open. Here it is the standard deviation of the rewards, so that the weights of the KL
penalty and of the entropy mean the same for all graphs. The trials of the iteration count too.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from pesto_cli.data.columns import FloatArray, IntArray

# The policy is stuck if the best placements of so many iterations have fewer different step times,
# as in HeteroG's program.
RECENT, FEWEST_DIFFERENT = 20, 5
# Rewards are equal up to rounding if their deviation is below this share of their mean.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Kept:
    """A placement that is kept: its step time that counts, and its actions, `[num_decisions]`."""

    cost_us: float
    actions: tuple[int, ...]


@dataclass(frozen=True)
class Trials:
    """Statistics of the trials of one graph.

    count: number of trials. mean, variance: of their rewards. best_us: the shortest step time.
    kept: the best placements, the best first.
    recent_us: the shortest step time of each of the last `RECENT` iterations.
    """

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0
    best_us: float = np.inf
    kept: tuple[Kept, ...] = ()
    recent_us: tuple[float, ...] = ()

    def keeping(self, most: int, costs_us: FloatArray, chosen: IntArray) -> Self:
        """Return the trials with the best placements of those that are kept and new ones.

        Args:
            most: how many are kept.
            costs_us: of the new placements, `[num_placements]`.
            chosen: their actions, `[num_placements, num_decisions]`.
        """
        new = map(Kept, costs_us.tolist(), map(tuple, chosen.tolist()))
        every = {each.actions: each for each in (*self.kept, *new)}.values()
        return replace(self, kept=tuple(sorted(every, key=lambda each: each.cost_us)[:most]))

    def extended(self, rewards: FloatArray, best_us: float, least_share: float = 0.0) -> Self:
        """Return the statistics with more trials.

        Args:
            rewards: of the new trials, `[num_placements]`.
            best_us: the shortest step time of the new trials.
            least_share: the share that new trials have in the statistics at least. With 0, all
                trials count alike (Chan, Golub and LeVeque, 1983); otherwise the mean is a moving
                average with this weight (Finch, 2009).
        """
        count = self.count + len(rewards)
        share = max(len(rewards) / count, least_share)
        change = float(rewards.mean()) - self.mean
        within = float(rewards.var())
        return replace(
            self,
            count=count,
            mean=self.mean + share * change,
            variance=(1 - share) * (self.variance + share * change**2) + share * within,
            best_us=min(self.best_us, best_us),
            recent_us=(*self.recent_us, best_us)[-RECENT:],
        )

    @property
    def is_stuck(self) -> bool:
        """Whether the last iterations had nearly the same best placements."""
        return len(self.recent_us) == RECENT and len({*self.recent_us}) < FEWEST_DIFFERENT

    @property
    def unit(self) -> float:
        """The standard deviation of the rewards; infinite if they do not differ but by rounding."""
        deviation = float(np.sqrt(self.variance))
        return deviation if deviation > ROUNDING * abs(self.mean) else np.inf
