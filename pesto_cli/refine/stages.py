"""Refinement: anneal the contracted graph first, then single ops.

Each worker anneals a chain of its own. In the first stage, the first worker begins with the best
start, the second with the second best, and so on. In the other stages, all workers begin with the
best schedule of all. Temperatures are low on large graphs, because a hot chain loses the structure
of its start, and the time is too short to find a better one (`docs/search.md`).

With samples, the quality of a schedule is its mean makespan over these samples, and no longer its
makespan with the times of the problem. The search then only has the stages `ROBUST_STAGES`, as it
starts from the best schedule of a search without samples.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pesto_cli.bounds import critical_path_us, load_us
from pesto_cli.data.limits import Limits
from pesto_cli.data.result import optimal_up_to_us
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine.anneal import Chain
from pesto_cli.refine.justification import justified
from pesto_cli.refine.levels import Level
from pesto_cli.refine.moves import MOVES, Move
from pesto_cli.refine.samples import Samples

OnIncumbent = Callable[[str, Schedule], None]


@dataclass(frozen=True)
class Cooling:
    """The parameters of annealing one chain in a stage.

    level: makes the level that the chain runs on.
    hot, cold: first and last temperature, in units of the makespan's lower bound divided by the
        number of nodes, as the effect of a move grows with the time of a node, not of the graph.
    hottest: the first temperature if there is time for many evaluations; see `FEW`.
    order: share of moves that change the order; the others change devices.
    only_groups: whether only moves of groups of the families are made.
    """

    level: Callable[[Simulator], Level]
    hot: float
    cold: float
    hottest: float | None = None
    order: float = 0.0
    only_groups: bool = False

    def temperature(self, progress: float, patience: float) -> float:
        """Return the temperature at a progress of 0 to 1, in the unit of `hot`.

        patience: from 0, if there is time for few evaluations of each node, to 1 for many.
        """
        hottest = self.hot if self.hottest is None else self.hottest
        hot = float(self.hot ** (1 - patience) * hottest**patience)
        return float(hot * (self.cold / hot) ** progress)


@dataclass(frozen=True)
class Stage:
    """A stage, in which all workers anneal in parallel.

    share: share of the time limit.
    cooling: parameters of all chains.
    together: whether all workers start from the best schedule of all, or each from its own.
    most_lost: single ops are annealed instead if the best schedule takes more than so many times as
        long on the level.
    """

    share: float
    cooling: Cooling
    together: bool = True
    most_lost: float = math.inf


STAGES = (
    Stage(0.3, Cooling(Level.contracted, hot=0.5, cold=0.2, hottest=10.0), together=False),
    Stage(0.5, Cooling(Level.contracted, hot=0.25, cold=0.08, hottest=2.0)),
    Stage(0.2, Cooling(Level.of_ops, hot=0.5, cold=0.1, order=0.1)),
)
# The placement of super-ops. Moves of clusters and single ops would only destroy it at this
# temperature.
SUPER_OP_STAGES = (Stage(1.0, Cooling(Level.super_ops, hot=0.3, cold=0.015, only_groups=True)),)
ROBUST_STAGES = (
    Stage(0.5, Cooling(Level.contracted, hot=1.0, cold=0.08, order=0.1)),
    Stage(0.5, Cooling(Level.of_ops, hot=0.5, cold=0.1, order=0.2)),
)
# For a constructed schedule with split ops. Programs of many short ops, such as those of batch
# normalisation, take longer on the contracted graph.
STAGES_NEAR_START = (
    Stage(0.7, Cooling(Level.contracted_parts, hot=1.0, cold=0.08, hottest=10.0), most_lost=1.04),
    Stage(0.3, Cooling(Level.of_ops, hot=0.5, cold=0.1, order=0.1)),
)
# Few and many evaluations for each node of the contracted graph in a search. With few, a high
# temperature would only destroy the structure of the start; with many, it finds a better one.
FEW, MANY = 5.0, 50.0
# First and last penalty of a stage; see `Chain.anneal`.
PENALTIES = (3.0, 100.0)
# Ops and edges that a thread simulates in a second, measured on two cores of a server from 2020.
OPS_PER_S = 2.5e7
# Time for which a chain runs between checks of the time limit and of a requested stop.
BATCH_S = 0.05
# An evaluation takes at least as long as the simulation of so many ops and edges.
OPS_OF_EVALUATION = 250
# A stage prepares its level and its families of groups for at least so long. With less time no move
# would be evaluated.
PREPARATION_US_PER_OP = 100.0
# In each stage, the best states of the chains are collected at least this many times, and at least
# once a second.
MIN_ROUNDS = 20


def refine(
    simulator: Simulator,
    starts: Sequence[Schedule],
    limits: Limits,
    *,
    lower_bound_us: float = 0.0,
    moves: Mapping[str, Move] | None = None,
    samples: Samples | None = None,
    stages: Sequence[Stage] = STAGES,
    on_incumbent: OnIncumbent = lambda source, schedule: None,
) -> Schedule:
    """Improve schedules by annealing, and return the best one.

    Args:
        simulator: simulator of the problem.
        starts: the schedules to start from, at least one.
        limits: limits of the search; each worker anneals on a thread of its own.
        lower_bound_us: the search ends when a makespan reaches it; 0 for a search with samples.
        moves: the moves by name; by default all registered moves that can be compiled.
        samples: minimise the mean makespan over these samples, instead of the makespan.
        stages: the stages of the search; those of a search with samples are `ROBUST_STAGES`.
        on_incumbent: called with ("refinement", schedule) for each better schedule.

    Returns:
        A schedule that is never worse than the best start. It fits in memory if the search found
        any schedule that does.
    """
    if moves is None:
        moves = MOVES.usable()
    chains = _Chains(simulator, starts, limits, moves, samples, on_incumbent)
    if not chains.has_time_for_moves:
        chains.justify()
        return chains.best
    for stage in stages if samples is None else ROBUST_STAGES:
        if chains.is_out_of_time:
            break
        chains.run(stage, until_us=optimal_up_to_us(lower_bound_us))
    return chains.best


def evaluations_of_super_ops(simulator: Simulator, limits: Limits) -> float:
    """Return how many placements a search evaluates for each super-op, about."""
    level = Level.super_ops(simulator)
    return _evaluations(level, level.size, limits)


def _evaluations(level: Level, work: int, limits: Limits) -> float:
    """Return how many placements a chain evaluates for each node, about.

    work: ops and edges that are simulated in an evaluation.
    """
    return limits.time_limit_s * OPS_PER_S / max(1, work * level.num_nodes)


class _Chains:
    """The chains of all workers, through all stages."""

    def __init__(
        self,
        simulator: Simulator,
        starts: Sequence[Schedule],
        limits: Limits,
        moves: Mapping[str, Move],
        samples: Samples | None,
        on_incumbent: OnIncumbent,
    ) -> None:
        problem = simulator.problem
        self._simulator, self._limits, self._moves = simulator, limits, moves
        self._samples, self._on_incumbent = samples, on_incumbent
        ranked = sorted(starts, key=self._quality)
        self.best = ranked[0]
        self._bests = [ranked[worker % len(ranked)] for worker in range(limits.workers)]
        self._bound_us = max(critical_path_us(problem), load_us(problem))
        self._levels: dict[Callable[[Simulator], Level], Level] = {}
        self._began = time.monotonic()
        self._stages_run = 0
        self._spent = 0.0  # total share of the stages that have run

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time is over, so that no further stage begins."""
        is_late = time.monotonic() - self._began >= self._limits.time_limit_s
        return is_late and not self._limits.deterministic

    @property
    def has_time_for_moves(self) -> bool:
        """Whether the time limit is longer than the preparation of a stage."""
        needed_s = PREPARATION_US_PER_OP * self._simulator.problem.num_ops / 1e6
        return self._limits.deterministic or self._limits.time_limit_s >= needed_s

    def justify(self) -> None:
        """Offer the best schedule of each worker with a justified order, unless a stop is asked."""
        for worker in range(self._limits.workers) if not self._limits.stop.is_set() else ():
            self._offer(worker, justified(self._simulator, self._bests[worker]))

    def run(self, stage: Stage, until_us: float) -> None:
        """Run a stage: anneal all chains and collect their best states in regular rounds.

        End early when the best schedule fits in memory and its makespan is at most `until_us`.
        """
        workers = range(self._limits.workers)
        level = self._level_for(stage)
        starts = [self.best if stage.together else self._bests[worker] for worker in workers]
        chains = [self._chain(worker, level, stage, starts[worker]) for worker in workers]
        seen = [chain.objective for chain in chains]
        with ThreadPoolExecutor(len(chains)) as threads:
            rounds = max(MIN_ROUNDS, int(stage.share * self._limits.time_limit_s))
            for part in range(1, rounds + 1):
                if self._quality(self.best) <= (0, until_us):
                    break
                until = part / rounds
                running = [
                    threads.submit(self._anneal, stage, level, chain, until) for chain in chains
                ]
                for done in running:
                    done.result()
                for worker, chain in enumerate(chains):
                    if part == 1 or chain.objective < seen[worker]:
                        seen[worker] = chain.objective
                        self._offer(worker, level.expanded(*chain.best))
        self.justify()
        self._stages_run += 1
        self._spent += stage.share

    def _level_for(self, stage: Stage) -> Level:
        """Return the level of a stage, or that of single ops; see `Stage.most_lost`."""
        level = self._level_of(stage.cooling.level)
        if math.isfinite(stage.most_lost):
            makespan_us = level.makespan_us(*level.projected(self.best))
            if makespan_us > stage.most_lost * self.best.makespan_us:
                return self._level_of(Level.of_ops)
        return level

    def _level_of(self, made_by: Callable[[Simulator], Level]) -> Level:
        if made_by not in self._levels:
            self._levels[made_by] = made_by(self._simulator)
        return self._levels[made_by]

    def _chain(self, worker: int, level: Level, stage: Stage, start: Schedule) -> Chain:
        seed = (self._limits.seed, self._stages_run, worker)
        samples, moves = self._samples, self._moves
        if stage.cooling.only_groups:
            moves = {name: move for name, move in moves.items() if move.of_groups}
        if samples is not None and level.simulator is not self._simulator:
            samples = samples.of_nodes(level.coarsening)
        chain = Chain(level.simulator, level.families, seed, moves, samples)
        chain.go_to(*level.projected(start))
        return chain

    def _anneal(self, stage: Stage, level: Level, chain: Chain, until: float) -> None:
        """Run a chain until the progress of the stage reaches `until`, or a stop is requested."""
        batch = self._batch(stage, level)
        unit_us = self._bound_us / max(1, level.num_nodes)
        while not self._limits.stop.is_set():
            progress = self._progress(stage.share, level, chain)
            if progress >= until:
                break
            chain.anneal(
                batch,
                unit_us * stage.cooling.temperature(progress, self._patience(stage)),
                PENALTIES[0] * (PENALTIES[1] / PENALTIES[0]) ** progress,
                stage.cooling.order,
            )

    def _batch(self, stage: Stage, level: Level) -> int:
        """Return the number of evaluations between two checks of the progress.

        They take `BATCH_S`, or less if the stage is shorter.
        """
        batch_s = min(BATCH_S, stage.share * self._limits.time_limit_s)
        return max(1, int(batch_s * OPS_PER_S / self._work(level)))

    def _progress(self, share: float, level: Level, chain: Chain) -> float:
        """Return the progress of a stage, from 0 to 1.

        Progress is the share of the stage's time that has passed, or in deterministic mode the
        share of the stage's work that is done.
        """
        limit_s = self._limits.time_limit_s
        if limit_s <= 0:
            return 1.0
        if self._limits.deterministic:
            return chain.evaluations * self._work(level) / (share * limit_s * OPS_PER_S)
        spent = (time.monotonic() - self._began) / limit_s
        return (spent - self._spent) / share

    def _patience(self, stage: Stage) -> float:
        """From 0 to 1: whether there is time for `FEW` or for `MANY` evaluations of each node."""
        level = self._level_of(stage.cooling.level)
        evaluations = _evaluations(level, self._work(level), self._limits)
        return float(np.clip(np.log(max(evaluations, FEW) / FEW) / np.log(MANY / FEW), 0.0, 1.0))

    def _work(self, level: Level) -> int:
        """Return the number of ops and edges whose simulation takes as long as an evaluation."""
        num_simulations = 1 if self._samples is None else 1 + self._samples.num_samples
        return max(level.size, OPS_OF_EVALUATION) * num_simulations

    def _offer(self, worker: int, schedule: Schedule) -> None:
        """Keep a schedule if it is better than the worker's best, or than the best of all."""
        quality = self._quality(schedule)
        if quality < self._quality(self._bests[worker]):
            self._bests[worker] = schedule
        if quality < self._quality(self.best):
            self.best = schedule
            self._on_incumbent("refinement", schedule)

    def _quality(self, schedule: Schedule) -> tuple[int, float]:
        """Return a sort key: the shortfall of memory in bytes, then the (mean) makespan in us."""
        shortfall, makespan_us = objective(self._simulator.problem, schedule)
        if self._samples is None:
            return shortfall, makespan_us
        return shortfall, self._samples.mean_us(self._simulator, schedule.placement)
