"""A lower bound on the makespan over all plans: over all ways to split ops, and all schedules.

The time of a part with a share s of an op is f(s) times that of the op, where f is linear between
the points of `PartTimes.curve`. Below the smallest point, f has the value of this point. So

- all parts of an op together take at least min_s f(s) / s of its time, because the shares add up to
  1; the minimum is at one of the points;
- each part takes at least min_s f(s) of its time, and waits for a part of each predecessor.

The parts of an op may share its work, so the bound for one device counts its smallest part alone.

If each part computes a copy of an output, an op that takes the output waits for one of the parts
only. So this op is on a path after the op, but not after all of its parts.

An op whose parts may consist of added ops alone takes no time.

Conversions, transfers and colocation of ops that can be split only add time, and are ignored. So
is the colocation of a Switch, because it leaves its group if the op that it follows is split.

Ops that a split step may lack (`sharding/needed.py`) take no time.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from pesto_cli.bounds.chains import heads, tails
from pesto_cli.bounds.load import groups_between_us, spread_between_us, spread_us
from pesto_cli.data.columns import BoolArray, FloatArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import has_main_op
from pesto_cli.sharding.groups import FOLLOWS_ITS_INPUT
from pesto_cli.sharding.needed import after_all_parts, needed_in_all_plans
from pesto_cli.sharding.rules import all_alternatives


@cached_per_problem
def all_plans_bound_us(problem: Problem) -> float:
    """Return the bound in us. Without prices of parts, it is the bound of path and load."""
    least_work, least_part = _least_ratios(problem)
    is_alone: BoolArray = np.any((least_work < 1) | (least_part < 1), axis=1)
    if problem.parts is not None:
        graph, counts = needed_in_all_plans(problem.graph, problem.parts)
        graph = replace(graph, num_members=np.where(counts, graph.num_members, 0))
        time_us = problem.time_us * counts[:, None]
        leaves_group = np.isin(graph.types, [*FOLLOWS_ITS_INPUT])
        problem = replace(problem, graph=graph, time_us=time_us)
        is_alone = is_alone | ~counts | leaves_group
    work = _relaxed(problem, problem.time_us * least_work, is_alone)
    part = _relaxed(problem, problem.time_us * least_part, is_alone)
    time_us = part.min_duration_us
    head_us, tail_us = heads(problem.graph, time_us), tails(problem.graph, time_us)
    after_all_us = tail_us
    if problem.parts is not None:
        after_all_us = tails(after_all_parts(problem.graph, problem.parts), time_us)
    path_us = float((head_us + time_us + tail_us).max(initial=0.0))
    return max(
        path_us,
        groups_between_us(part, head_us, tail_us),
        spread_us(work),
        spread_between_us(work, head_us, after_all_us),
    )


def _relaxed(problem: Problem, time_us: FloatArray, is_alone: BoolArray) -> Problem:
    """Return the problem with other times; ops of `is_alone` are in no colocation group."""
    group = problem.graph.colocation_group.copy()
    group[is_alone] = problem.graph.num_groups + np.arange(int(is_alone.sum()))
    _, dense = np.unique(group, return_inverse=True)
    graph = replace(problem.graph, colocation_group=dense)
    return replace(problem, graph=graph, time_us=time_us, parts=None)


def _least_ratios(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Return min f(s) / s and min f(s) of each op, `[num_ops, num_kinds]` each."""
    parts = problem.parts
    if parts is None:
        return np.ones_like(problem.time_us), np.ones_like(problem.time_us)
    may_lack_op = np.array(
        [spec is not None and _may_lack_op(spec) for spec in parts.op_specs], dtype=np.bool_
    )
    work, part = (
        parts.least(lambda shares, ratios: float(np.nanmin(ratios / shares))),
        parts.least(lambda _, ratios: float(np.nanmin(ratios))),
    )
    work[may_lack_op] = part[may_lack_op] = 0.0
    return work, part


@lru_cache(maxsize=2**14)
def _may_lack_op(spec: OpSpec) -> bool:
    """Return whether an op can be split into parts that consist of added ops alone."""
    return any(not has_main_op(spec, way) for way in all_alternatives(spec))
