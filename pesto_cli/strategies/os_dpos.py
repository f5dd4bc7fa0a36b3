"""`os-dpos`: FastT's operation splitting (Yi et al., Middleware '20, Section 5.2, Algorithm 2).

The first graph is the data-parallel one, or that of the model if no copy of the model fits on a
device with its part of the batch. DPOS places it. The ops of its critical path are taken in
descending order of time. Each is split along each of its dimensions, into 2 to |D| parts for |D|
accelerators, and DPOS places the graph of each split. The best split is kept if the step becomes
shorter. The first op without a gain ends the search. As in Section 4, a result that is slower than
the data-parallel step is discarded. Differences:

- the data-parallel step is the better of those of `ev-ps` and `ev-ar`. The first graph is that of
  `ev-ps`, with one owner of each variable, whose device DPOS chooses;
- the graph of the model is tried in any case, and the best result is returned;
- an op of the data-parallel graph is a part of an op, and all parts of an op are split alike: into
  2 to |D| times as many along the same dimension, or the whole op along another one. At most as
  many parts are tried as the profile prices;
- DPOS runs with the transfer times of the best round for the first graph (`congestion_rounds`), and
  the finish time that is compared is the simulated one, with congestion. DPOS's own finish time
  decreases by splits of Transformer-10-8-1024 that make the simulated step 5 % longer;
- ops that cannot be split are passed over: variables, ops that take their handles, ops that the
  user's constraints split, and ops whose consumers take open sums of them;
- no Split and Concat is between two ops that are split alike.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import shortfall_bytes
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError, InfeasibleError, UnfitError
from pesto_cli.evaluation.simulator import Simulator, upward_rank
from pesto_cli.sharding.alternative import shares_of
from pesto_cli.sharding.problems import prices_of, rewritten
from pesto_cli.sharding.rules import alternatives
from pesto_cli.sharding.rules.variables import is_variable
from pesto_cli.strategies.congestion_rounds import Round, best_of_rounds, filled_bytes, simulated
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import EvAr, EvPs, batch_plan
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.dpos import critical_path, dpos_schedule
from pesto_cli.strategies.meshes import devices_of_equal_parts
from pesto_cli.strategies.time_shares import shares

# Estimated time to split a graph and to place it, for each of its ops; measured on a Transformer.
# In deterministic mode, the number of splits that are tried follows from it.
TRY_US_PER_OP = 100.0


@dataclass(frozen=True)
class OsDpos:
    """FastT's operation splitting with DPOS.

    splits_critical_ops: if False, DPOS places the first graphs as they are (Table 6, "No split").
    """

    name: ClassVar[str] = "os-dpos"
    splits: ClassVar[bool] = True
    needs_parts: ClassVar[bool] = True
    splits_critical_ops: bool = True

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Return the best of the data-parallel step and of Algorithm 2 from each first graph."""
        share, found, starts = shares(context.limits), list[Solution](), [problem.chosen]
        with suppress(UnfitError):  # no input can be split
            found = _data_parallel_steps(problem, context)
            if found:
                starts.insert(0, batch_plan(problem, devices_of_equal_parts(problem)))
        place = split_critical_ops if self.splits_critical_ops else placed_by_dpos
        for number, start in enumerate(starts, start=1):
            if not (found and context.limits.stop.is_set()):
                limits = share(1 / len(starts), number / len(starts))
                found.append(place(problem, start, replace(context, limits=limits)))
        return min(found, key=lambda solution: solution.objective)


def _data_parallel_steps(problem: Problem, context: Context) -> list[Solution]:
    """Return the data-parallel steps that fit into memory.

    Raises:
        UnfitError: no input can be split.
    """
    is_over, found = context.limits.begin(), list[Solution]()
    for strategy in (EvPs(), EvAr()):
        if not (found and is_over()):
            found.append(strategy(problem, context))
    return [each for each in found if not shortfall_bytes(each.problem, each.schedule).any()]


def placed_by_dpos(problem: Problem, plan: Plan, context: Context) -> Solution:
    """Place the graph that a plan gives by DPOS."""
    return _placed(problem, plan, _first_round(problem, plan, context))


def split_critical_ops(problem: Problem, plan: Plan, context: Context) -> Solution:
    """Run Algorithm 2 from the graph that a plan gives."""
    is_over = context.limits.begin()
    first = _first_round(problem, plan, context)
    best, left = _placed(problem, plan, first), math.inf
    if context.limits.deterministic:
        left = context.limits.time_limit_s * 1e6 / (TRY_US_PER_OP * max(1, best.problem.num_ops))
    for op in _critical_ops(best, first):
        tried = list[tuple[Plan, Solution]]()
        for choice in _choices(problem, plan, op):
            if is_over() or left < 1:
                break
            left -= 1
            candidate = replace(plan, choices={**plan.choices, problem.graph.names[op]: choice})
            with suppress(BadInputError, InfeasibleError):  # it does not fit the other choices
                tried.append((candidate, _placed(problem, candidate, first)))
        if tried:
            candidate, solution = min(tried, key=lambda each: each[1].objective)
            if solution.objective >= best.objective:
                break
            plan, best = candidate, solution
    return best


def _first_round(problem: Problem, plan: Plan, context: Context) -> Round:
    graph = rewritten(problem, plan).problem if plan else problem
    return best_of_rounds(graph, context, dpos_schedule)


def _placed(problem: Problem, plan: Plan, assumed: Round) -> Solution:
    """Split the ops of a problem by a plan, and place them by DPOS with the assumptions of a round.

    Raises:
        BadInputError: the plan does not fit the graph, or its parts have no prices.
        InfeasibleError: an op that the plan adds can run on no device.
    """
    split = rewritten(problem, plan) if plan else None
    graph = problem if split is None else split.problem
    memory_bytes = filled_bytes(graph, assumed.fill)
    ideal = dpos_schedule(replace(graph, machine=assumed.machine), memory_bytes)
    schedule = simulated(Simulator(graph), ideal)
    return Solution.of(problem, schedule) if split is None else split.solution(problem, schedule)


def _critical_ops(solution: Solution, assumed: Round) -> list[int]:
    """Return the ops with parts on the critical path, by descending time of the part.

    The path is that of the placement: with op times on its devices, and its assumed transfers.
    """
    graph, device = replace(solution.problem, machine=assumed.machine), solution.schedule.device
    path = critical_path(graph, upward_rank(graph, device))
    time_us = graph.duration_us[path, device[path]]
    origin = solution.origin[path[np.argsort(-time_us, kind="stable")]]
    return list(dict.fromkeys(origin[origin >= 0].tolist()))


def _choices(problem: Problem, plan: Plan, op: int) -> Iterator[Choice]:
    """Yield the ways to split an op, or to split it further than a plan does, in equal parts."""
    parts, name = prices_of(problem), problem.graph.names[op]
    spec, before = parts.spec(op), plan.choices.get(name)
    if spec is None or is_variable(spec) or spec.takes_handle:
        return
    if name in problem.chosen.choices:
        return
    for way in alternatives(spec, problem.local):
        is_same = before is not None and before.alternative == way.name
        for number in range(2, len(accelerators(problem)) + 1):
            num_parts = number * before.num_parts if before and is_same else number
            if way.size is not None and num_parts <= min(way.size, parts.numbers[-1]):
                yield Choice(way.name, shares_of(way.size, [1.0] * num_parts))
