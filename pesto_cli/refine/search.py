"""Refinement: anneal coarse nodes first, then the contracted graph, and then op by op."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pesto_cli.bounds import critical_path_us, load_us
from pesto_cli.limits import Limits
from pesto_cli.refine.anneal import Chain
from pesto_cli.refine.levels import Level
from pesto_cli.schedule import Schedule, goodness
from pesto_cli.simulate import Simulator

OnIncumbent = Callable[[str, Schedule], None]


@dataclass(frozen=True)
class Stage:
    """One cooling.

    level: the graph that it runs on. share: of the time.
    hot, cold: first and last temperature, as shares of the makespan's lower bound.
    order: the share of moves that change the order; the others change devices.
    """

    level: Callable[[Simulator], Level]
    share: float
    hot: float
    cold: float
    order: float


STAGES = (
    Stage(Level.coarse, share=0.3, hot=5e-3, cold=1e-4, order=0.0),
    Stage(Level.contracted, share=0.45, hot=2e-3, cold=5e-5, order=0.0),
    Stage(Level.of_ops, share=0.25, hot=2e-4, cold=2e-5, order=0.1),
)
# See `Chain.anneal`; the first of a stage, and the last.
PENALTIES = (3.0, 100.0)
# Ops and edges that a thread simulates in a second, on two cores of a server of 2020.
OPS_PER_S = 1.5e7
# How long a chain runs before it looks at the clock and whether it is asked to stop.
BATCH_S = 0.05
# How often in a stage the chains' best states are looked at, at least; and at least every second.
MIN_ROUNDS = 20
# A bound that is met can lie below the makespan by rounding.
ROUNDING = 1e-9


def refine(
    simulator: Simulator,
    starts: Sequence[Schedule],
    limits: Limits,
    *,
    lower_bound_us: float = 0.0,
    on_incumbent: OnIncumbent = lambda source, schedule: None,
) -> Schedule:
    """The best schedule that is found from some others, never worse than the best of these.

    Args:
        simulator: of the problem.
        starts: at least one schedule.
        limits: every worker anneals on a thread of its own.
        lower_bound_us: the search ends when it is met.
        on_incumbent: called with ("refinement", schedule) for every better one.

    Returns:
        A schedule that fits into memory, if one was seen.
    """
    search = _Search(simulator, starts, limits, on_incumbent)
    for stage in STAGES:
        search.run(stage, until_us=lower_bound_us * (1 + ROUNDING))
    return search.best


class _Search:
    """Chains, one for every worker, stage after stage."""

    def __init__(
        self,
        simulator: Simulator,
        starts: Sequence[Schedule],
        limits: Limits,
        on_incumbent: OnIncumbent,
    ) -> None:
        problem = simulator.problem
        self._simulator, self._limits, self._on_incumbent = simulator, limits, on_incumbent
        self._starts = sorted(starts, key=lambda start: goodness(problem, start))
        self.best = self._starts[0]
        self._bound_us = max(critical_path_us(problem), load_us(problem))
        self._began = time.monotonic()
        self._stages_run = 0
        self._spent = 0.0  # share of the time

    def run(self, stage: Stage, until_us: float) -> None:
        """Anneal every chain, look at the best of each now and then; end early at a makespan."""
        level = stage.level(self._simulator)
        chains = [self._chain(level, worker) for worker in range(self._limits.workers)]
        seen = [chain.goodness for chain in chains]
        with ThreadPoolExecutor(len(chains)) as threads:
            rounds = max(MIN_ROUNDS, int(stage.share * self._limits.time_limit_s))
            for part in range(1, rounds + 1):
                if goodness(self._simulator.problem, self.best) <= (0, until_us):
                    break
                until = part / rounds
                running = [
                    threads.submit(self._anneal, stage, level, chain, until) for chain in chains
                ]
                for done in running:
                    done.result()
                for worker, chain in enumerate(chains):
                    if part == 1 or chain.goodness < seen[worker]:
                        seen[worker] = chain.goodness
                        self._offer(level.expanded(*chain.best))
        self._stages_run += 1
        self._spent += stage.share

    def _chain(self, level: Level, worker: int) -> Chain:
        """A chain at one of the starts, or in a later stage at the best so far."""
        seed = (self._limits.seed, self._stages_run, worker)
        chain = Chain(level.simulator, level.families, seed)
        first = self._stages_run == 0
        start = self._starts[worker % len(self._starts)] if first else self.best
        chain.go_to(*level.projected(start))
        return chain

    def _anneal(self, stage: Stage, level: Level, chain: Chain, until: float) -> None:
        """Run a chain until this share of the stage is over."""
        batch = max(1, int(BATCH_S * OPS_PER_S / level.size))
        while not self._limits.stop.is_set():
            progress = self._progress(stage, level, chain)
            if progress >= until:
                break
            chain.anneal(
                batch,
                self._bound_us * stage.hot * (stage.cold / stage.hot) ** progress,
                PENALTIES[0] * (PENALTIES[1] / PENALTIES[0]) ** progress,
                stage.order,
            )

    def _progress(self, stage: Stage, level: Level, chain: Chain) -> float:
        """What share of a stage is over: of its time, or in deterministic mode of its work."""
        limit_s = self._limits.time_limit_s
        if limit_s <= 0:
            return 1.0
        if self._limits.deterministic:
            return chain.evaluations * level.size / (stage.share * limit_s * OPS_PER_S)
        spent = (time.monotonic() - self._began) / limit_s
        return (spent - self._spent) / stage.share

    def _offer(self, schedule: Schedule) -> None:
        """Take a schedule if it is better."""
        problem = self._simulator.problem
        if goodness(problem, schedule) < goodness(problem, self.best):
            self.best = schedule
            self._on_incumbent("refinement", schedule)
