"""Refinement: anneal placement and order, contracted first and then op by op."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pesto_cli.bounds import lower_bound_us
from pesto_cli.limits import Limits
from pesto_cli.refine.anneal import Chain
from pesto_cli.refine.levels import Level, goodness
from pesto_cli.schedule import Schedule
from pesto_cli.simulate import Simulator

OnIncumbent = Callable[[str, Schedule], None]


@dataclass(frozen=True)
class Stage:
    """One cooling.

    contracted: whether it runs on the contracted graph. share: of the time.
    first, last: temperatures, as shares of the makespan's lower bound.
    """

    contracted: bool
    share: float
    first: float
    last: float


STAGES = (
    Stage(contracted=True, share=0.2, first=5e-3, last=1e-4),
    Stage(contracted=True, share=0.5, first=3e-3, last=5e-5),
    Stage(contracted=False, share=0.3, first=3e-4, last=3e-5),
)
# A state that exceeds the memory by a share e counts as (1 + penalty e) as long.
PENALTIES = (3.0, 100.0)
# Ops and edges that are simulated in a second: sets the evaluations in deterministic mode.
OPS_PER_S = 1.5e7
BATCH_S = 0.05
# How often in a stage chains are looked at, and their best reported.
ROUNDS = 20


def refine(
    simulator: Simulator,
    starts: Sequence[Schedule],
    limits: Limits,
    *,
    on_incumbent: OnIncumbent = lambda source, schedule: None,
) -> Schedule:
    """The best schedule that is found from some others, never worse than the best of these.

    Args:
        simulator: of the problem.
        starts: at least one schedule.
        limits: every worker anneals on a thread of its own.
        on_incumbent: called with ("refinement", schedule) for every better one.

    Returns:
        A schedule that fits into memory, if one was seen.
    """
    best = min(starts, key=lambda start: goodness(simulator.problem, start))
    search = _Search(simulator, limits, best, on_incumbent)
    for stage in STAGES:
        search.run(stage, starts)
    return search.best


@dataclass
class _Search:
    simulator: Simulator
    limits: Limits
    best: Schedule
    on_incumbent: OnIncumbent
    began: float = field(default_factory=time.monotonic)
    spent: float = 0.0  # share of the time
    levels: dict[bool, Level] = field(default_factory=dict)
    chains: dict[bool, list[Chain]] = field(default_factory=dict)

    def run(self, stage: Stage, starts: Sequence[Schedule]) -> None:
        """Anneal every chain, and look at them now and then."""
        level, chains = self._chains(stage.contracted, starts)
        until = self.spent + stage.share
        clock = _Clock(self, stage, level, until)
        with ThreadPoolExecutor(self.limits.workers) as threads:
            for part in range(1, ROUNDS + 1):
                for done in [threads.submit(clock.run, chain, part / ROUNDS) for chain in chains]:
                    done.result()
                for chain in chains:
                    self.offer(level.expanded(*chain.best))
        self.spent = until

    def offer(self, schedule: Schedule) -> None:
        """Take a schedule if it is better."""
        problem = self.simulator.problem
        if goodness(problem, schedule) < goodness(problem, self.best):
            self.best = schedule
            self.on_incumbent("refinement", schedule)

    def _chains(self, contracted: bool, starts: Sequence[Schedule]) -> tuple[Level, list[Chain]]:
        """Chains at this level: at the starts in turn at first, at the best later."""
        if contracted not in self.levels:
            make = Level.contracted if contracted else Level.of_ops
            level = self.levels[contracted] = make(self.simulator)
            self.chains[contracted] = [
                Chain(level.simulator, level.families, self.limits.seed * 1000 + worker)
                for worker in range(self.limits.workers)
            ]
        level, chains = self.levels[contracted], self.chains[contracted]
        pool = sorted(starts, key=lambda s: goodness(self.simulator.problem, s))
        for worker, chain in enumerate(chains):
            if self.spent == 0.0:
                chain.begin_at(*level.projected(pool[worker % len(pool)]))
            else:
                chain.begin_at(*level.projected(self.best))
                leader = min(chains, key=lambda chain: chain.goodness)
                chain.begin_at(*leader.best)
        return level, chains


class _Clock:
    """How far a stage has come: by the time, or in deterministic mode by evaluations."""

    def __init__(self, search: _Search, stage: Stage, level: Level, until: float) -> None:
        self._limits, self._stage = search.limits, stage
        self._bound_us = lower_bound_us(search.simulator.problem)
        self._batch = max(1, int(BATCH_S * OPS_PER_S / level.size))
        time_limit_s = search.limits.time_limit_s
        self._from = search.began + time_limit_s * search.spent
        self._to = search.began + time_limit_s * until
        self._evaluations = stage.share * time_limit_s * OPS_PER_S / level.size

    def run(self, chain: Chain, until: float) -> None:
        """Anneal a chain until this share of the stage is over."""
        if until * ROUNDS == 1:
            chain.begun = chain.evaluations
        while not self._limits.stop.is_set():
            progress = self._progress(chain)
            if progress >= until:
                break
            first, last = self._stage.first, self._stage.last
            temperature = self._bound_us * first * (last / first) ** progress
            penalty = PENALTIES[0] * (PENALTIES[1] / PENALTIES[0]) ** progress
            chain.anneal(self._batch, (temperature, temperature), penalty)

    def _progress(self, chain: Chain) -> float:
        if self._limits.deterministic:
            return (chain.evaluations - chain.begun) / self._evaluations
        return (time.monotonic() - self._from) / (self._to - self._from)
