"""Collect times of nodes step by step."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from pesto_cli.data.graph import FloatArray


class NodeSteps:
    """Sums the times of each node at each place in each of `num_steps` steps."""

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps
        self._us: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)

    def add(self, step: int, node: str, place: str, us: float) -> None:
        """Add one run of a node in a step."""
        by_step = self._us[node, place]
        by_step[step] = by_step.get(step, 0.0) + us

    def columns(self) -> Mapping[tuple[str, str], FloatArray]:
        """Return `Measured.us`: (node, place) -> `[num_steps]`, NaN if the node did not run."""
        columns = {}
        for key, by_step in self._us.items():
            columns[key] = np.full(self.num_steps, np.nan)
            columns[key][list(by_step)] = list(by_step.values())
        return columns
