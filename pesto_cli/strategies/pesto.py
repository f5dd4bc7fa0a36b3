"""`pesto`: coarsen, solve the coarse graph as a 0-1 ILP, expand to op level, refine.

Pesto, Section 3, with two additions: as a coarse optimum can be worse at op level than a cheap
strategy's answer, the search starts from these, the rivals that there is time for among them, and
never returns less; and what the ILP finds is refined op by op, where most of the improvement is.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pesto_cli import ilp
from pesto_cli.bounds import lower_bound_us
from pesto_cli.coarsen import Coarsening, coarsen
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress, optimal_up_to_us
from pesto_cli.data.schedule import Schedule, objective, shortfall_bytes
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.printable import logger
from pesto_cli.refine import refine
from pesto_cli.strategies.baechi.m_etf import m_etf
from pesto_cli.strategies.carried_over import in_old_places
from pesto_cli.strategies.dpos import dpos
from pesto_cli.strategies.expert import expert
from pesto_cli.strategies.metis import metis
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.search import Answer, Search
from pesto_cli.strategies.single import single

# The ILP's share of the time limit; the refinement has the rest. Where the coarse graph is the
# graph, the ILP may prove the optimum; else it finds what it finds within seconds (docs/search.md).
ILP_SHARE = 0.15
COARSE_ILP_SHARE = 0.05

# Rivals in the order of their worth as starts. Each may take so long for an op, by which it is told
# how many of them fit into this share of the time limit: the same in every run.
RIVALS = (("metis", metis), ("m-etf", m_etf), ("fastt", dpos))
RIVAL_US_PER_OP = 150.0
RIVALS_SHARE = 0.15
# On many devices these and the expert take longer: by the clock, all starts end at this share.
STARTS_SHARE = 0.3

WARM_START = "warm start"

_log = logger(__name__)


def pesto(simulator: Simulator, search: Search) -> Answer:
    """Improve on what `single`, `expert` and some rivals find, and on the warm start."""
    share, stop = _shares(search.limits), search.limits.stop
    starts = _starts(simulator, search, share)
    is_coarse = simulator.problem.num_ops > search.num_nodes
    ilp_share = COARSE_ILP_SHARE if is_coarse else ILP_SHARE
    incumbent = Incumbent(simulator, search)
    incumbent.prove(lower_bound_us(simulator.problem))
    for source, schedule in starts.items():
        incumbent.begin(source)
        incumbent.offer(source, schedule)
    if WARM_START in starts and starts[WARM_START].makespan_us > incumbent.schedule.makespan_us:
        del starts[WARM_START]  # It would lead away from a better one.
    found: list[Schedule] = []
    notes: tuple[str, ...] = ()
    if not stop.is_set():
        incumbent.begin("coarse ILP")
        coarse = solve_coarsely(simulator, search, share(ilp_share), list(starts.values()))
        for schedule in coarse.schedules:
            incumbent.offer("coarse ILP", schedule)
        found += coarse.schedules
        incumbent.prove(coarse.lower_bound_us)
        notes = (coarse.left_out,) if coarse.left_out else ()
    pools = [[*starts.values(), *found]]
    if WARM_START in starts and len(starts) > 1 and search.limits.workers == 1:
        # One chain alone stays near its start: half of the time is for the others.
        warm = starts.pop(WARM_START)
        pools = [[warm, *found], list(starts.values())]
    if not stop.is_set():
        rest = share(1.0 - ilp_share if search.limits.deterministic else 1.0)
        part = replace(rest, time_limit_s=rest.time_limit_s / len(pools))
        bound_us = incumbent.lower_bound_us
        incumbent.begin("refinement")
        for pool in pools:
            if incumbent.is_optimal:
                break
            refine(simulator, pool, part, lower_bound_us=bound_us, on_incumbent=incumbent.offer)
    best = incumbent.schedule
    if search.warm_start is not None:
        best = in_old_places(simulator, best, search.warm_start)
    return Answer(best, incumbent.lower_bound_us, notes)


def _shares(limits: Limits) -> Callable[[float], Limits]:
    """From now on, what is left of the first part of the time, as a share of all."""
    began = time.monotonic()

    def share(of: float) -> Limits:
        spent_s = 0.0 if limits.deterministic else time.monotonic() - began
        return replace(limits, time_limit_s=max(0.0, of * limits.time_limit_s - spent_s))

    return share


def _starts(
    simulator: Simulator, search: Search, share: Callable[[float], Limits]
) -> dict[str, Schedule]:
    """The warm start, and what cheap strategies and as many rivals as there is time for find."""
    starts: dict[str, Schedule] = {}
    if search.warm_start is not None:
        starts[WARM_START] = simulator.replay(search.warm_start)
        _note_what_is_short(simulator.problem, starts[WARM_START])
        if not search.cheap_starts:
            return starts
    starts["single"] = single(simulator, search).schedule
    starts["expert"] = expert(simulator, replace(search, limits=share(RIVALS_SHARE))).schedule
    rivals_us = RIVAL_US_PER_OP * simulator.problem.num_ops
    num_rivals = int(RIVALS_SHARE * search.limits.time_limit_s * 1e6 // max(rivals_us, 1.0))
    for name, rival in RIVALS[:num_rivals]:
        if not search.limits.stop.is_set():
            starts[name] = rival(simulator, replace(search, limits=share(STARTS_SHARE))).schedule
    return starts


def _note_what_is_short(problem: Problem, start: Schedule) -> None:
    short = zip(problem.machine.devices, shortfall_bytes(problem, start).tolist(), strict=True)
    devices = [f"that of {device.name} by {size:,} bytes" for device, size in short if size]
    if devices:
        _log.warning(
            "the warm start exceeds the memory, %s: it serves as a hint only.", ", ".join(devices)
        )


@dataclass(frozen=True, eq=False)
class CoarseSolution:
    """Op-level schedules of what the ILP found, and its bound where that holds for the full graph.

    That is where the graph was small enough to be solved as it is.

    left_out: why the ILP was not searched, if it was not.
    """

    schedules: list[Schedule]
    lower_bound_us: float
    left_out: str = ""


def solve_coarsely(
    simulator: Simulator, search: Search, limits: Limits, starts: list[Schedule]
) -> CoarseSolution:
    """Solve the ILP on the coarse graph, from the best of the starts, and expand what it finds."""
    problem = simulator.problem
    coarsening = coarsen(problem, search.num_nodes)
    coarse_simulator = Simulator(coarsening.problem)
    coarse_starts = [
        ordered(coarse_simulator, coarsening.project(problem, schedule.device))
        for schedule in starts
    ]
    solution = ilp.solve_ilp(
        coarsening.problem,
        limits,
        solver=search.solver,
        congestion=search.congestion,
        balance=search.balance,
        warm_start=min(coarse_starts, key=lambda s: objective(coarsening.problem, s)),
    )
    found = solution.schedule
    # A balance of outputs is a wish of the ILP's, so its bound holds for what respects that only.
    is_full_model = coarsening.problem is problem and search.balance is None
    return CoarseSolution(
        schedules=[] if found is None else expanded(simulator, coarsening, found),
        lower_bound_us=solution.bound_us if is_full_model else 0.0,
        left_out=solution.left_out,
    )


class Incumbent:
    """The best schedule so far and what is proved of it; tells every change of these."""

    def __init__(self, simulator: Simulator, search: Search) -> None:
        self._simulator = simulator
        self._search = search
        self._stage = self._source = ""
        self._best: Schedule | None = None
        self.lower_bound_us = 0.0

    @property
    def schedule(self) -> Schedule:
        """The best schedule offered; there must have been one."""
        if self._best is None:
            raise LookupError("no schedule was offered")
        return self._best

    @property
    def is_optimal(self) -> bool:
        """Whether the best schedule fits, and is proved."""
        quality = objective(self._simulator.problem, self.schedule)
        return quality <= (0, optimal_up_to_us(self.lower_bound_us))

    def begin(self, stage: str) -> None:
        """Something else looks for better schedules from now on."""
        self._stage = stage
        self._tell()

    def offer(self, source: str, schedule: Schedule) -> None:
        """Take a schedule if it is better."""
        problem = self._simulator.problem
        if self._best is None or objective(problem, schedule) < objective(problem, self._best):
            self._source, self._best = source, schedule
            self._tell()

    def prove(self, lower_bound_us: float) -> None:
        """Take a bound if it is higher."""
        if lower_bound_us > self.lower_bound_us:
            self.lower_bound_us = lower_bound_us
            self._tell()

    def _tell(self) -> None:
        if self._best is None:
            return
        progress = Progress(
            stage=self._stage,
            source=self._source,
            incumbent=self._best,
            shortfall_bytes=int(shortfall_bytes(self._simulator.problem, self._best).sum()),
            lower_bound_us=self.lower_bound_us,
        )
        self._search.on_progress(progress)


def expanded(simulator: Simulator, coarsening: Coarsening, coarse: Schedule) -> list[Schedule]:
    """Op-level schedules of a coarse one: by upward rank, and node by node in the coarse order."""
    device = coarsening.expand(coarse.device)
    by_node = coarsening.priority(coarse.start_us, simulator.upward_rank(device))
    return [ordered(simulator, device), simulator.list_schedule(device, by_node)]
