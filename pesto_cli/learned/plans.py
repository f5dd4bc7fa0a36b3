"""The environment of HeteroG: a device or a way to replicate for each group in, its step out.

Source: Yi et al., CoNEXT '20, Sections 3.3, 4.1 and 5. A group is on one device, or each of its ops
that can be is split along the batch, with parts of equal sizes or in proportion to the speeds of
their devices. Variables of such a group have one owner each (parameter servers), or a copy on each
device (an all-reduce). Departures from the paper:

- A device has one part, where HeteroG gives a fast one several equal replicas.
- The devices of the owners are dealt by bytes. HeteroG takes for each the one that minimises the
  time of its aggregation.
- If a group has copies of its variables, all sums of the plan are added on each host first. HeteroG
  chooses between a ring and a hierarchical all-reduce for each variable.
- The order of upward ranks is compared with that by depth, as in the baselines here.
- A way to replicate that cannot be used, such as without prices of parts, is no action.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pesto_cli.data.columns import BoolArray, IntArray, unique_rows
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import objective
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.learned.environment import Environment
from pesto_cli.learned.features import features
from pesto_cli.learned.groups import SuperOps, around_longest
from pesto_cli.learned.network import allowed_logits
from pesto_cli.learned.replication import Replication
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.meshes import Mesh
from pesto_cli.strategies.order import highest_rank_first, in_order_of_depth
from pesto_cli.strategies.part_devices import devices_of_parts


@dataclass(frozen=True, eq=False)
class Plans(Environment):
    """A problem with its groups; inputs: see `GraphAttention`."""

    groups: SuperOps
    replication: Replication

    @classmethod
    def of(cls, problem: Problem, most: int) -> "Plans":
        """Group the ops of a problem into `most` groups at most."""
        replication, groups = Replication.of(problem), around_longest(problem, most)
        ops = around_longest(problem, problem.graph.num_groups)
        group_of_op = np.zeros(len(ops), dtype=np.int64)
        has_choice = ops.of_group >= 0
        group_of_op[ops.of_group[has_choice]] = groups.of_group[has_choice]
        inputs: tuple[NDArray[Any], ...] = (
            features(ops).astype(np.float32),
            _edges(ops),
            group_of_op,
            allowed_logits(_allowed(groups, replication)),
        )
        return cls(problem, inputs, replication.notes, groups, replication)

    def solution(self, chosen: IntArray) -> Solution:
        """Return the solution of the actions of all groups, `[num_groups]`."""
        problem = self.problem
        action = np.append(chosen, -1)[self.groups.of_op]  # -1: the op has no choice
        way = np.maximum(action - problem.num_devices, -1)
        split = self.replication.split(way)
        mesh = Mesh((tuple(self.replication.devices),))
        stage = np.zeros(split.problem.num_ops, dtype=np.int64)
        device = devices_of_parts(split, mesh, stage, np.where(way < 0, action, -1))
        simulator = Simulator(split.problem)
        schedules = highest_rank_first(simulator, device), in_order_of_depth(simulator, device)
        schedule = min(schedules, key=lambda each: objective(split.problem, each))
        return split.solution(problem, schedule) if split.plan else Solution.of(problem, schedule)


def _edges(ops: SuperOps) -> IntArray:
    """Return the pairs of neighbours, both ways, and of each op with itself, `[num_pairs, 2]`."""
    pairs = ops.of_op[ops.problem.graph.edges.reshape(-1, 2)]
    pairs = pairs[(pairs >= 0).all(axis=1)]
    itself = np.repeat(np.arange(len(ops))[:, None], 2, axis=1)
    return unique_rows(np.concatenate((pairs, pairs[:, ::-1], itself)))


def _allowed(groups: SuperOps, replication: Replication) -> BoolArray:
    """Return the actions of each group, `[num_groups, num_actions]`: accelerators, and ways.

    A group that may run on no accelerator may run where its ops may.
    """
    is_accelerator = np.zeros(groups.problem.num_devices, dtype=np.bool_)
    is_accelerator[accelerators(groups.problem)] = True
    able = groups.allowed()
    fast = able & is_accelerator
    devices = np.where(fast.any(axis=1, keepdims=True), fast, able)
    ways = np.tile([bool(way) for way in replication.ways], (len(groups), 1))
    return np.concatenate((devices, ways), axis=1)
