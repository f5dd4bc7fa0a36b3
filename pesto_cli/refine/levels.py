"""The graph at one size: what chains anneal on it, and how its schedules become op-level ones."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from pesto_cli.bounds import critical_path_us, load_us
from pesto_cli.coarsen import Coarsening, coarsen
from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine.contraction import contract
from pesto_cli.refine.families import Families, families_of

# The coarse graph has so many nodes, or one for every `OPS_A_NODE` ops in between.
LEAST_NODES, MOST_NODES = 200, 2000
OPS_A_NODE = 4
# An op is short, and contracted, if it takes at most this share of the makespan's lower bound, and
# at most so long: in a deep graph, long ops are a small share too.
SHORT = 1e-4
SHORT_US = 50.0


@dataclass(frozen=True, eq=False)
class Level:
    """A coarsening or contraction of the ops' problem, or that problem itself.

    full: of the ops' problem. simulator: of this level's, that of the coarsening.
    """

    full: Simulator
    simulator: Simulator
    families: Families
    coarsening: Coarsening

    @classmethod
    def of_ops(cls, simulator: Simulator) -> Self:
        """The ops themselves."""
        problem = simulator.problem
        itself = Coarsening(problem, np.arange(problem.num_ops))
        return cls(simulator, simulator, families_of(problem, coarse=False), itself)

    @classmethod
    def contracted(cls, simulator: Simulator) -> Self:
        """Short ops have joined their neighbours: nearly lossless, and several times as fast."""
        problem = simulator.problem
        bound_us = max(critical_path_us(problem), load_us(problem))
        return cls.of(simulator, contract(problem, min(SHORT * bound_us, SHORT_US)))

    @classmethod
    def coarse(cls, simulator: Simulator) -> Self:
        """Coarsened as for the ILP, but not as far: moves weigh more, and evaluations are fast."""
        problem = simulator.problem
        num_nodes = min(max(LEAST_NODES, problem.num_ops // OPS_A_NODE), MOST_NODES)
        return cls.of(simulator, coarsen(problem, num_nodes))

    @classmethod
    def of(cls, simulator: Simulator, coarsening: Coarsening) -> Self:
        """The nodes of a coarsening of the simulator's problem."""
        problem = coarsening.problem
        families = families_of(problem, coarse=True)
        return cls(simulator, Simulator(problem), families, coarsening)

    @property
    def size(self) -> int:
        """Ops and edges: what the time of an evaluation is proportional to."""
        graph = self.simulator.problem.graph
        return graph.num_ops + len(graph.edges)

    def projected(self, schedule: Schedule) -> tuple[IntArray, FloatArray]:
        """A state of this level from an op-level schedule, as (device, rank offset) of every node.

        The order is that of the ranks, or of the nodes' starts if that is shorter.
        """
        device = self.coarsening.project(self.full.problem, schedule.device)
        start_us = np.full(len(device), -np.inf)
        np.maximum.at(start_us, self.coarsening.node_of_op, schedule.start_us)
        return device, self._offset(device, start_us)

    def expanded(self, device: IntArray, offset: FloatArray) -> Schedule:
        """The op-level schedule of a state: the better of the ranks' order and the nodes' own."""
        if self.simulator is self.full:
            return self._list(device, offset)
        of_op = self.coarsening.expand(device)
        by_rank = self.full.upward_rank(of_op) + self.coarsening.expand(offset)
        by_node = self.coarsening.priority(self._list(device, offset).start_us, by_rank)
        schedules = [self.full.list_schedule(of_op, rank) for rank in (by_rank, by_node)]
        return min(schedules, key=lambda schedule: objective(self.full.problem, schedule))

    def _list(self, device: IntArray, offset: FloatArray) -> Schedule:
        return self.simulator.list_schedule(device, self.simulator.upward_rank(device) + offset)

    def _offset(self, device: IntArray, start_us: FloatArray) -> FloatArray:
        rank_us = self.simulator.upward_rank(device)
        none = np.zeros_like(rank_us)
        of_starts = rank_us.max(initial=0.0) - start_us - rank_us
        return min(
            none,
            of_starts,
            key=lambda offset: self.simulator.makespan_us(device, rank_us + offset),
        )
