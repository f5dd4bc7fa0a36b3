"""Levels: the graph at one size, and the conversion of its schedules to and from op level."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from pesto_cli.bounds import critical_path_us, load_us
from pesto_cli.coarsen import Coarsening
from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine.contraction import CAP_OF_PARTS, contract
from pesto_cli.refine.families import (
    Families,
    families_of_nodes,
    families_of_ops,
    families_of_super_ops,
)

# An op is short, and is contracted, if it takes at most `SHORT` times the makespan's lower bound,
# and at most `SHORT_US`. In a deep graph, long ops too are a small share of the makespan.
SHORT = 1e-4
SHORT_US = 50.0


@dataclass(frozen=True, eq=False)
class Level:
    """A problem at one level: the op-level problem, or a coarsening or contraction of it.

    full: simulator of the op-level problem.
    simulator: simulator of this level's problem, `coarsening.problem`.
    num_nodes: number of ops or nodes, or of different super-ops; temperatures are in units of the
        bound divided by it.
    """

    full: Simulator
    simulator: Simulator
    families: Families
    coarsening: Coarsening
    num_nodes: int

    @classmethod
    def of_ops(cls, simulator: Simulator) -> Self:
        """Return the level of single ops."""
        problem = simulator.problem
        itself = Coarsening(problem, np.arange(problem.num_ops))
        return cls(simulator, simulator, families_of_ops(problem), itself, problem.num_ops)

    @classmethod
    def contracted(cls, simulator: Simulator) -> Self:
        """Return the level with short ops merged: nearly exact, and several times faster."""
        return cls.of(simulator, _contraction(simulator.problem))

    @classmethod
    def super_ops(cls, simulator: Simulator) -> Self:
        """Return the contracted level with only super-ops as families (`coarsen/scopes.py`)."""
        level = cls.contracted(simulator)
        families = families_of_super_ops(level.simulator.problem)
        return replace(level, families=families, num_nodes=len(families.group_offsets) - 1)

    @classmethod
    def contracted_parts(cls, simulator: Simulator) -> Self:
        """Return the level of a split problem with short ops merged, but fewer of them."""
        return cls.of(simulator, _contraction_of_parts(simulator.problem))

    @classmethod
    def of(cls, simulator: Simulator, coarsening: Coarsening) -> Self:
        """Return the level of a coarsening of the simulator's problem."""
        problem = coarsening.problem
        return cls(
            simulator, Simulator(problem), families_of_nodes(problem), coarsening, problem.num_ops
        )

    @property
    def size(self) -> int:
        """Number of ops and edges, to which the time of an evaluation is proportional."""
        graph = self.simulator.problem.graph
        return graph.num_ops + len(graph.edges)

    def projected(self, schedule: Schedule) -> tuple[IntArray, FloatArray]:
        """Return (device, rank offset) of each node, `[num_nodes]` each, from an op-level schedule.

        The order is by upward rank, or by the starts of nodes if this gives a shorter schedule.
        """
        device = self.coarsening.project(self.full.problem, schedule.device)
        start_us = np.full(len(device), -np.inf)
        np.maximum.at(start_us, self.coarsening.node_of_op, schedule.start_us)
        return device, self._offset(device, start_us)

    def makespan_us(self, device: IntArray, offset: FloatArray) -> float:
        """Return the makespan of a state on this level."""
        return self.simulator.makespan_us(device, self.simulator.upward_rank(device) + offset)

    def expanded(self, device: IntArray, offset: FloatArray) -> Schedule:
        """Return the op-level schedule of a state: the better of two orders of the ops.

        One order is by the ops' upward rank + offset, the other by the starts of the nodes.
        """
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
        return min(none, of_starts, key=lambda offset: self.makespan_us(device, offset))


@cached_per_problem
def _contraction(problem: Problem) -> Coarsening:
    return contract(problem, _short_us(problem))


@cached_per_problem
def _contraction_of_parts(problem: Problem) -> Coarsening:
    return contract(problem, _short_us(problem), CAP_OF_PARTS)


def _short_us(problem: Problem) -> float:
    bound_us = max(critical_path_us(problem), load_us(problem))
    return min(SHORT * bound_us, SHORT_US)
