"""The environment of Spotlight: the device of each super-op in, its simulated step out.

Spotlight runs ten steps of each placement on a machine (Section 5.1, "Distributed training"). Here
the simulator replaces the machine, with the order by upward rank. The paper does not treat
placements that do not fit in memory. Here their step time counts ten times
(`Policy.out_of_memory_factor`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.columns import IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.data.symmetry import interchangeable
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.learned.environment import Environment
from pesto_cli.learned.features import features, relations
from pesto_cli.learned.groups import SuperOps, by_scope
from pesto_cli.learned.network import allowed_logits
from pesto_cli.strategies.order import highest_rank_first


@dataclass(frozen=True, eq=False)
class Placements(Environment):
    """A problem with its super-ops; `SequenceNetwork` describes the inputs."""

    simulator: Simulator
    super_ops: SuperOps

    @classmethod
    def of(cls, problem: Problem) -> "Placements":
        """Group the ops of a problem by their scopes."""
        super_ops = by_scope(problem)
        inputs = (
            features(super_ops).astype(np.float32),
            relations(super_ops).astype(np.float32),
            used_before(problem),
            allowed_logits(super_ops.allowed()),
        )
        return cls(problem, inputs, (), Simulator(problem), super_ops)

    def can_take(self, actions: Sequence[int]) -> bool:
        """Return whether actions are allowed, and interchangeable devices are used in order."""
        before, used = self.inputs[2], [*dict.fromkeys(actions)]
        return super().can_take(actions) and all(
            before[device] < 0 or before[device] in used[:number]
            for number, device in enumerate(used)
        )

    def solution(self, chosen: IntArray) -> Solution:
        """Return the solution of one placement, `[num_super_ops]`."""
        device = self.super_ops.devices(chosen)
        return Solution.of(self.problem, highest_rank_first(self.simulator, device))


def used_before(problem: Problem) -> IntArray:
    """Return for each device the one that a placement must use first, or -1, `[num_devices]`.

    In each class of interchangeable devices, it is the previous device.
    """
    before = np.full(problem.num_devices, -1, dtype=np.int64)
    for devices in interchangeable(problem):
        before[devices[1:]] = devices[:-1]
    return before
