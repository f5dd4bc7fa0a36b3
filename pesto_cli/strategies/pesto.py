"""`pesto`: coarsen, solve the coarse graph as a 0-1 ILP, expand to op level, refine.

The strategy follows Pesto, Section 3, with three additions. First, an optimum of the coarse graph
can be worse at op level than the result of a cheap strategy. So the search also starts from cheap
strategies and from the baselines that the time limit allows, and never returns a worse schedule.
Second, it searches placements of super-ops, which are whole scopes of a model (Spotlight, Section
5.1). Third, the best of all these schedules are refined at op level, which gives most of the
improvement.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from pesto_cli import ilp
from pesto_cli.bounds import lower_bound_us
from pesto_cli.coarsen import Coarsening, coarsen
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule, objective, shortfall_bytes
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.feasibility import unavoidable_shortfall
from pesto_cli.evaluation.sampling import check_varies
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.printable import logger
from pesto_cli.refine import refine
from pesto_cli.strategies.baechi.m_etf import MEtf
from pesto_cli.strategies.context import Context, Strategy
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.dpos import FastT
from pesto_cli.strategies.expert import Expert
from pesto_cli.strategies.fewer_hosts import FEWER_HOSTS, fewer_hosts_first, on_hosts_used_first
from pesto_cli.strategies.incumbent import Incumbent
from pesto_cli.strategies.interleaved import Interleaved
from pesto_cli.strategies.metis import Metis
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.placement_mapping import keep_old_devices
from pesto_cli.strategies.robust import ROBUST_SHARE, refined_robustly
from pesto_cli.strategies.single import Single
from pesto_cli.strategies.split_search import split_or_whole
from pesto_cli.strategies.split_search.ways import is_short
from pesto_cli.strategies.super_ops import placed_super_ops, share_of_super_ops
from pesto_cli.strategies.time_shares import Share, shares

# The ILP's share of the time that starts and super-ops leave; the refinement gets the rest. If the
# graph is small enough to be solved without coarsening, the ILP may prove the optimum. Otherwise
# more time hardly improves its result (docs/search.md).
ILP_SHARE = 0.15
COARSE_ILP_SHARE = 0.05

# Baselines, the best starts first. The number of baselines that run is the number that fits in this
# share of the time limit, with a fixed estimate of their time for each op. So it is the same in
# each run.
BASELINES: Mapping[str, Strategy] = {"metis": Metis(), "m-etf": MEtf(), "fastt": FastT()}
BEST_ON_MANY = "fastt"  # the best start on more than two accelerators
BASELINE_US_PER_OP = 150.0
BASELINES_SHARE = 0.15
# On many devices baselines and the expert take longer; all starts end at this share of the time.
STARTS_SHARE = 0.3

# Starts that place whole layers.
LAYERS = (Expert.name, Interleaved.name)

WARM_START = "warm start"

_log = logger(__name__)


@dataclass(frozen=True, eq=False)
class CoarseSolution:
    """The result of the ILP.

    schedules: op-level schedules of the result.
    lower_bound_us: its bound, if the graph was solved without coarsening, so that the bound holds
        for the full graph; else 0.
    left_out: why the ILP was skipped; empty if it was not.
    """

    schedules: list[Schedule]
    lower_bound_us: float
    left_out: str = ""


@dataclass(frozen=True)
class Pesto:
    """Improve on `single`, `expert`, several baselines and the warm start.

    solver: a name in `ilp.SOLVERS`.
    num_nodes: number of nodes of the coarse graph.
    congestion, balance: parameters of `ilp.solve_ilp`.
    cheap_starts: whether a search with a warm start also starts from cheap strategies. If the best
        of these is faster than the warm start, the warm start is not used.
    robust: whether the last part of the search minimises the mean makespan over samples of op times
        and delays, in place of the makespan; see `robust`.
    """

    name: ClassVar[str] = "pesto"
    is_search: ClassVar[bool] = True
    splits: ClassVar[bool] = True
    solver: str = "cpsat"
    num_nodes: int = 200
    congestion: bool = True
    balance: float | None = None
    cheap_starts: bool = True
    robust: bool = False

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Place the ops; also split them, if the problem has prices of parts.

        Raises:
            BadInputError: the search is robust, and no op time and no delay varies.
        """
        if problem.parts is not None and is_short(problem, context.limits):
            return self._on_all_hosts(problem, context, None)
        return fewer_hosts_first(self._on_all_hosts, problem, context)

    def _on_all_hosts(self, problem: Problem, context: Context, found: Solution | None) -> Solution:
        if problem.parts is not None:
            return split_or_whole(self, problem, context, found)
        starts = {} if found is None else {FEWER_HOSTS: found.schedule}
        return self.place(problem, context, starts)

    def place(
        self, problem: Problem, context: Context, found: Mapping[str, Schedule] | None = None
    ) -> Solution:
        """Coarsen, solve, expand, refine; ops stay whole.

        found: schedules from which the search also starts, by the name of their source.

        Raises:
            BadInputError: the search is robust, and no op time and no delay varies.
        """
        deviation = context.deviation_of(problem) if self.robust else None
        if deviation is not None:
            check_varies(problem, deviation)
        simulator, share = Simulator(problem), shares(context.limits)
        ilp_share = COARSE_ILP_SHARE if problem.num_ops > self.num_nodes else ILP_SHARE
        starts, found = self._starts(simulator, context, share), found or {}
        share = shares(share(1.0))  # of the time that the starts have left
        starts |= found
        incumbent = Incumbent(problem, context)
        incumbent.prove(lower_bound_us(problem))
        for source, schedule in starts.items():
            incumbent.begin(source)
            incumbent.offer(source, schedule)
        if WARM_START in starts and starts[WARM_START].makespan_us > incumbent.schedule.makespan_us:
            del starts[WARM_START]  # the search would stay near the worse start
        coarse = CoarseSolution([], 0.0)
        hopeless = unavoidable_shortfall(problem)
        if hopeless is not None:
            left_out = f"no placement can fit into memory, so the search is skipped: {hopeless}."
            return Solution.of(problem, incumbent.schedule, incumbent.lower_bound_us, (left_out,))
        super_op_starts = self._super_op_starts(problem, starts)
        if super_op_starts and not context.limits.stop.is_set():
            super_op_share = share_of_super_ops(simulator, context.limits)
            share = shares(share(1.0))
            if super_op_share:
                limits = share(super_op_share)
                starts |= placed_super_ops(simulator, super_op_starts, limits, incumbent)
                share = shares(share(1 - super_op_share, 1.0))
        if not context.limits.stop.is_set():
            incumbent.begin("coarse ILP")
            coarse = self.solve_coarsely(simulator, share(ilp_share), list(starts.values()))
            for schedule in coarse.schedules:
                incumbent.offer("coarse ILP", schedule)
            incumbent.prove(coarse.lower_bound_us)
        if not context.limits.stop.is_set():
            end = 1.0 if deviation is None else 1.0 - ROBUST_SHARE
            rest = share(end - ilp_share, end)
            _refine(simulator, _pools(starts, coarse.schedules, context.limits), rest, incumbent)
        best, sampled = incumbent.schedule, None
        if deviation is not None:
            incumbent.begin("robust refinement")
            rest = share(ROBUST_SHARE, 1.0)
            best, sampled = refined_robustly(simulator, best, deviation, rest)
        if context.warm_start is not None:
            best = keep_old_devices(simulator, best, context.warm_start)
        notes = (coarse.left_out,) if coarse.left_out else ()
        solution = Solution.of(problem, best, incumbent.lower_bound_us, notes)
        return replace(solution, sampled=sampled)

    def _super_op_starts(
        self, problem: Problem, starts: Mapping[str, Schedule]
    ) -> dict[str, Schedule]:
        """Return the starts from which super-ops are placed, by name.

        There are none if the graph needs no coarsening, or with a good warm start.
        """
        if problem.num_ops <= self.num_nodes or Single.name not in starts or WARM_START in starts:
            return {}
        layers = min((starts[name] for name in LAYERS), key=lambda each: objective(problem, each))
        return {"one device": starts[Single.name], "layers": layers}

    def solve_coarsely(
        self, simulator: Simulator, limits: Limits, starts: list[Schedule]
    ) -> CoarseSolution:
        """Solve the ILP on the coarse graph from the best start, and expand the result."""
        problem = simulator.problem
        coarsening = coarsen(problem, self.num_nodes)
        coarse_simulator = Simulator(coarsening.problem)
        coarse_starts = [
            ordered(coarse_simulator, coarsening.project(problem, schedule.device))
            for schedule in starts
        ]
        solution = ilp.solve_ilp(
            coarsening.problem,
            limits,
            solver=self.solver,
            congestion=self.congestion,
            balance=self.balance,
            warm_start=min(coarse_starts, key=lambda s: objective(coarsening.problem, s)),
        )
        found = solution.schedule
        # Only the ILP has the balance constraint. With it, the bound is not valid in general.
        is_full_model = coarsening.problem is problem and self.balance is None
        return CoarseSolution(
            schedules=[] if found is None else expanded(simulator, coarsening, found),
            lower_bound_us=solution.bound_us if is_full_model else 0.0,
            left_out=solution.left_out,
        )

    def _starts(self, simulator: Simulator, context: Context, share: Share) -> dict[str, Schedule]:
        """Return the warm start, and the schedules of cheap strategies and baselines, by name."""
        problem, starts = simulator.problem, dict[str, Schedule]()
        if context.warm_start is not None:
            starts[WARM_START] = _replayed(simulator, context.warm_start)
            if not self.cheap_starts:
                return starts
        starts[Single.name] = Single()(problem, context).schedule
        in_time = replace(context, limits=share(BASELINES_SHARE))
        starts[Expert.name] = Expert()(problem, in_time).schedule
        starts[Interleaved.name] = Interleaved()(problem, in_time).schedule
        baselines_us = BASELINE_US_PER_OP * problem.num_ops
        num_baselines = int(
            BASELINES_SHARE * context.limits.time_limit_s * 1e6 // max(baselines_us, 1.0)
        )
        names = list(BASELINES)
        if len(accelerators(problem)) > 2:
            names.sort(key=lambda name: name != BEST_ON_MANY)
        for name in names[:num_baselines]:
            if not context.limits.stop.is_set():
                in_time = replace(context, limits=share(STARTS_SHARE))
                starts[name] = BASELINES[name](problem, in_time).schedule
        return starts


def _pools(
    starts: dict[str, Schedule], found: list[Schedule], limits: Limits
) -> list[list[Schedule]]:
    """Return the pools of starts, which are refined one after the other.

    With one worker there is only one chain, and a chain stays near its start. So the warm start and
    the other starts get half of the time each.
    """
    if WARM_START in starts and len(starts) > 1 and limits.workers == 1:
        others = [schedule for name, schedule in starts.items() if name != WARM_START]
        return [[starts[WARM_START], *found], others]
    return [[*starts.values(), *found]]


def _refine(
    simulator: Simulator, pools: list[list[Schedule]], limits: Limits, incumbent: Incumbent
) -> None:
    bound_us = incumbent.lower_bound_us
    incumbent.begin("refinement")
    for on_hosts, start, of_hosts in on_hosts_used_first(simulator, incumbent, limits):
        chosen = pools if on_hosts is simulator else [[start]]
        part = replace(of_hosts, time_limit_s=of_hosts.time_limit_s / len(chosen))
        for pool in chosen:
            if not incumbent.is_optimal:
                refine(on_hosts, pool, part, lower_bound_us=bound_us, on_incumbent=incumbent.offer)


def _replayed(simulator: Simulator, warm_start: Placement) -> Schedule:
    schedule = simulator.replay(warm_start)
    _warn_of_shortfall(simulator.problem, schedule)
    return schedule


def _warn_of_shortfall(problem: Problem, start: Schedule) -> None:
    short = zip(problem.machine.devices, shortfall_bytes(problem, start).tolist(), strict=True)
    devices = [f"that of {device.name} by {size:,} bytes" for device, size in short if size]
    if devices:
        _log.warning(
            "the warm start exceeds the memory, %s: it is used only as a hint.", ", ".join(devices)
        )


def expanded(simulator: Simulator, coarsening: Coarsening, coarse: Schedule) -> list[Schedule]:
    """Return two op-level schedules of a coarse one: by upward rank, and in the order of nodes."""
    device = coarsening.expand(coarse.device)
    by_node = coarsening.priority(coarse.start_us, simulator.upward_rank(device))
    return [ordered(simulator, device), simulator.list_schedule(device, by_node)]
