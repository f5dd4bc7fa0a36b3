"""The step times of all sampled placements of a graph, and how much better than them one is.

In Spotlight (Eq. 1), the reward of a placement is the average time of all trials so far minus its
own. The paper leaves the unit of time open. Here it is the standard deviation of all trials, so
that the weight of the KL penalty means the same for all graphs. The trials of the iteration count
too.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from pesto_cli.data.columns import FloatArray
from pesto_cli.learned.network import Array


@dataclass(frozen=True)
class Trials:
    """Statistics of the step times of all placements of one graph, in us.

    square_us2: sum of the squares of deviations from the mean. best_us: the shortest step time.
    """

    count: int = 0
    mean_us: float = 0.0
    square_us2: float = 0.0
    best_us: float = np.inf

    def extended(self, costs_us: FloatArray) -> Self:
        """Return the statistics with more trials (Chan, Golub and LeVeque, 1983)."""
        count = self.count + len(costs_us)
        change_us = float(costs_us.mean()) - self.mean_us
        square_us2 = self.square_us2 + float(((costs_us - costs_us.mean()) ** 2).sum())
        return type(self)(
            count,
            self.mean_us + change_us * len(costs_us) / count,
            square_us2 + change_us**2 * self.count * len(costs_us) / count,
            min(self.best_us, float(costs_us.min())),
        )

    def advantage(self, costs_us: FloatArray) -> Array:
        """Return by how many standard deviations each trial is better than the average."""
        deviation_us = np.sqrt(self.square_us2 / max(self.count, 1))
        scale = 1 / deviation_us if deviation_us > 0 else 0.0
        return ((self.mean_us - costs_us) * scale).astype(np.float32)
