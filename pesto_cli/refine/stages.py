"""Refinement: anneal coarse nodes first, then the contracted graph, and then op by op.

Every worker anneals on its own until the last stage. One of two begins on the coarse graph, where
moves weigh more and evaluations are fast, at the best start; the other on the contracted graph,
which loses less, at the worst start, which commits it to least.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pesto_cli.bounds import critical_path_us, load_us
from pesto_cli.data.limits import Limits
from pesto_cli.data.result import optimal_up_to_us
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine.anneal import Chain
from pesto_cli.refine.levels import Level
from pesto_cli.refine.moves import MOVES, Move

OnIncumbent = Callable[[str, Schedule], None]


@dataclass(frozen=True)
class Cooling:
    """How one chain anneals.

    level: the graph that it runs on.
    hot, cold: first and last temperature. The unit is the makespan's lower bound over the number of
        nodes: what a move changes is as long as a node, and not as the graph.
    order: the share of moves that change the order; the others change devices.
    """

    level: Callable[[Simulator], Level]
    hot: float
    cold: float
    order: float = 0.0


@dataclass(frozen=True)
class Stage:
    """Coolings side by side.

    share: of the time. coolings: dealt to the workers.
    together: whether all workers start at the best of all, or each at the best of its own.
    """

    share: float
    coolings: tuple[Cooling, ...]
    together: bool = False


STAGES = (
    Stage(
        0.3,
        (
            Cooling(Level.coarse, hot=5.0, cold=0.1),
            Cooling(Level.contracted, hot=10.0, cold=0.1),
        ),
    ),
    Stage(0.5, (Cooling(Level.contracted, hot=2.0, cold=0.08),)),
    Stage(0.2, (Cooling(Level.of_ops, hot=0.5, cold=0.1, order=0.1),), together=True),
)
# See `Chain.anneal`; the first of a stage, and the last.
PENALTIES = (3.0, 100.0)
# Ops and edges that a thread simulates in a second, on two cores of a server of 2020.
OPS_PER_S = 2.5e7
# How long a chain runs before it looks at the clock and whether it is asked to stop.
BATCH_S = 0.05
# How often in a stage the chains' best states are looked at, at least; and at least every second.
MIN_ROUNDS = 20


def refine(
    simulator: Simulator,
    starts: Sequence[Schedule],
    limits: Limits,
    *,
    lower_bound_us: float = 0.0,
    moves: Mapping[str, Move] | None = None,
    on_incumbent: OnIncumbent = lambda source, schedule: None,
) -> Schedule:
    """The best schedule that is found from some others, never worse than the best of these.

    Args:
        simulator: of the problem.
        starts: at least one schedule.
        limits: every worker anneals on a thread of its own.
        lower_bound_us: the search ends when it is met.
        moves: by name, what is tried; if not given, all that are registered and can be used.
        on_incumbent: called with ("refinement", schedule) for every better one.

    Returns:
        A schedule that fits into memory, if one was seen.
    """
    if moves is None:
        moves = MOVES.usable()
    chains = _Chains(simulator, starts, limits, moves, on_incumbent)
    for stage in STAGES:
        if chains.is_out_of_time:
            break
        chains.run(stage, until_us=optimal_up_to_us(lower_bound_us))
    return chains.best


class _Chains:
    """One for every worker, stage after stage."""

    def __init__(
        self,
        simulator: Simulator,
        starts: Sequence[Schedule],
        limits: Limits,
        moves: Mapping[str, Move],
        on_incumbent: OnIncumbent,
    ) -> None:
        problem = simulator.problem
        self._simulator, self._limits, self._moves = simulator, limits, moves
        self._on_incumbent = on_incumbent
        ranked = sorted(starts, key=lambda start: objective(problem, start))
        self.best = ranked[0]
        self._bests = [ranked[-(worker % 2)] for worker in range(limits.workers)]
        self._bound_us = max(critical_path_us(problem), load_us(problem))
        self._levels: dict[Callable[[Simulator], Level], Level] = {}
        self._began = time.monotonic()
        self._stages_run = 0
        self._spent = 0.0  # share of the time

    @property
    def is_out_of_time(self) -> bool:
        """Whether not even the graphs of another stage are to be made."""
        is_late = time.monotonic() - self._began >= self._limits.time_limit_s
        return is_late and not self._limits.deterministic

    def run(self, stage: Stage, until_us: float) -> None:
        """Anneal every chain, look at the best of each now and then; end early at a makespan."""
        workers = range(self._limits.workers)
        coolings = [stage.coolings[worker % len(stage.coolings)] for worker in workers]
        levels = [self._level(cooling) for cooling in coolings]
        starts = [self.best if stage.together else self._bests[worker] for worker in workers]
        chains = [self._chain(*each) for each in zip(workers, levels, starts, strict=True)]
        seen = [chain.objective for chain in chains]
        with ThreadPoolExecutor(len(chains)) as threads:
            rounds = max(MIN_ROUNDS, int(stage.share * self._limits.time_limit_s))
            for part in range(1, rounds + 1):
                if objective(self._simulator.problem, self.best) <= (0, until_us):
                    break
                until = part / rounds
                running = [
                    threads.submit(self._anneal, stage.share, *each, until)
                    for each in zip(coolings, levels, chains, strict=True)
                ]
                for done in running:
                    done.result()
                for worker, chain in enumerate(chains):
                    if part == 1 or chain.objective < seen[worker]:
                        seen[worker] = chain.objective
                        self._offer(worker, levels[worker].expanded(*chain.best))
        self._stages_run += 1
        self._spent += stage.share

    def _level(self, cooling: Cooling) -> Level:
        if cooling.level not in self._levels:
            self._levels[cooling.level] = cooling.level(self._simulator)
        return self._levels[cooling.level]

    def _chain(self, worker: int, level: Level, start: Schedule) -> Chain:
        seed = (self._limits.seed, self._stages_run, worker)
        chain = Chain(level.simulator, level.families, seed, self._moves)
        chain.go_to(*level.projected(start))
        return chain

    def _anneal(
        self, share: float, cooling: Cooling, level: Level, chain: Chain, until: float
    ) -> None:
        """Run a chain until this part of the stage is over."""
        batch = max(1, int(BATCH_S * OPS_PER_S / level.size))
        unit_us = self._bound_us / max(1, level.simulator.problem.num_ops)
        while not self._limits.stop.is_set():
            progress = self._progress(share, level, chain)
            if progress >= until:
                break
            chain.anneal(
                batch,
                unit_us * cooling.hot * (cooling.cold / cooling.hot) ** progress,
                PENALTIES[0] * (PENALTIES[1] / PENALTIES[0]) ** progress,
                cooling.order,
            )

    def _progress(self, share: float, level: Level, chain: Chain) -> float:
        """What part of a stage is over: of its time, or in deterministic mode of its work."""
        limit_s = self._limits.time_limit_s
        if limit_s <= 0:
            return 1.0
        if self._limits.deterministic:
            return chain.evaluations * level.size / (share * limit_s * OPS_PER_S)
        spent = (time.monotonic() - self._began) / limit_s
        return (spent - self._spent) / share

    def _offer(self, worker: int, schedule: Schedule) -> None:
        """Take a schedule if it is better."""
        problem = self._simulator.problem
        if objective(problem, schedule) < objective(problem, self._bests[worker]):
            self._bests[worker] = schedule
        if objective(problem, schedule) < objective(problem, self.best):
            self.best = schedule
            self._on_incumbent("refinement", schedule)
