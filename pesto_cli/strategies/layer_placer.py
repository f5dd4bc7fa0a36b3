"""From the device of each layer to a schedule."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from pesto_cli.coarsen.layers import Layers, layers_of_groups
from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.devices import accelerators, fastest_device
from pesto_cli.strategies.order import ordered


@dataclass(frozen=True, eq=False)
class LayerPlacer:
    """Places colocation groups on accelerators by their layers.

    layers: see `Layers`.
    group_us: the time of each group on each accelerator, `[num_groups, num_accelerators]`; 0 where
        it cannot run.
    work_us: the time of the groups of each layer, `[num_layers, num_accelerators]`, without groups
        that no accelerator can run.
    """

    simulator: Simulator
    layers: Layers
    devices: IntArray
    group_us: FloatArray
    work_us: FloatArray

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Find the layers of a problem, and their work."""
        layers = layers_of_groups(problem.graph, problem.min_duration_us)
        devices = np.array(accelerators(problem))
        time_us = problem.group_time_us[:, devices]
        group_us = np.where(np.isfinite(time_us), time_us, 0.0)
        work_us = np.zeros((len(layers.names), len(devices)))
        np.add.at(work_us, layers.of_group, group_us)
        return cls(Simulator(problem), layers, devices, group_us, work_us)

    def schedule(self, part: IntArray) -> Schedule:
        """Return the schedule of groups on accelerators, ordered by upward rank.

        A group that its accelerator cannot run is on its fastest device.

        Args:
            part: the position of the accelerator of each group, `[num_groups]`.
        """
        problem, device = self.simulator.problem, self.devices[part]
        allowed = problem.group_allowed[np.arange(len(device)), device]
        of_group = np.where(allowed, device, fastest_device(problem))
        return ordered(self.simulator, of_group[problem.graph.colocation_group])
