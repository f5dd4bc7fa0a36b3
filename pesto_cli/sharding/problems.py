"""Problem + plan -> Problem: the parts of ops as ops, with their times, sizes and constraints."""

from dataclasses import dataclass, replace

import numpy as np

from pesto_cli.data.columns import BoolArray, IntArray
from pesto_cli.data.parts import Parts
from pesto_cli.data.plan import WHOLE_OPS, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.errors import InfeasibleError, UnfitError
from pesto_cli.sharding.expansion import Expansion, expand
from pesto_cli.sharding.graphs import split_op_graph
from pesto_cli.sharding.times import split_times_us


@dataclass(frozen=True, eq=False)
class Rewritten:
    """A problem whose ops were split by a plan.

    origin: `[problem.num_ops]`: the op of the original problem of which the op is a copy or a part;
        -1 for an op that the rewriting has added.
    part: `[problem.num_ops]`: index of the part; -1 for ops that are no parts.
    host: `[problem.num_ops]`: the host of `plan.hosts` for which an added op adds parts or passes a
        tensor on; else -1.
    for_part: `[problem.num_ops]`: the part on whose device an added op is best; else -1.
    serves: `[problem.num_ops]`: the origin, or for an added op the op whose output it converts.
    is_priced: `[problem.num_ops]`: whether the op is a part whose time is a share of its op's time;
        other ops of a part, such as the scaling of a partial mean, move or combine data.
    """

    problem: Problem
    plan: Plan
    origin: IntArray
    part: IntArray
    host: IntArray
    for_part: IntArray
    serves: IntArray
    is_priced: BoolArray

    def solution(self, asked: Problem, schedule: Schedule) -> Solution:
        """Return the solution of the original problem that a schedule of the split ops gives."""
        return Solution(
            asked=asked,
            problem=self.problem,
            origin=self.origin,
            schedule=schedule,
            plan=self.plan,
            part=self.part,
            serves=self.serves,
        )


def rewritten(problem: Problem, plan: Plan) -> Rewritten:
    """Split the ops of a problem by a plan.

    Raises:
        BadInputError: the profile has no prices of parts, or none for a part of the plan; or the
            plan does not fit the graph.
        UnfitError: an op that the plan adds can run on no device.
    """
    parts = prices_of(problem)
    specs = parts.op_specs
    expansion = expand(problem.graph, specs, plan, parts.targets)
    return Rewritten(
        expanded(problem, expansion),
        plan,
        origin=expansion.origin,
        part=expansion.part,
        host=expansion.of_kept(expansion.ops.host),
        for_part=expansion.of_kept(expansion.ops.for_part),
        serves=expansion.serves,
        is_priced=expansion.is_priced,
    )


def expanded(problem: Problem, expansion: Expansion) -> Problem:
    """Return the problem of the ops of an expansion.

    Raises:
        BadInputError: the profile has no price for a part.
        UnfitError: an added op can run on no device.
    """
    parts = prices_of(problem)
    graph = split_op_graph(problem.graph, parts, expansion)
    time_us = split_times_us(problem, parts, expansion)
    permitted = permitted_of_parts(problem, expansion.origin, expansion.serves)
    try:
        return replace(
            problem,
            graph=graph,
            time_us=time_us,
            permitted=permitted,
            parts=None,
            chosen=WHOLE_OPS,
        )
    except InfeasibleError as error:
        raise UnfitError(f"the plan adds an op, but {error}") from error


def permitted_of_parts(problem: Problem, origin: IntArray, serves: IntArray) -> BoolArray:
    """Return the devices on which constraints allow each op of a rewritten problem.

    Parts may run where their op may, and added ops everywhere. problem: the problem with whole ops.
    origin, serves: see `Solution`.
    """
    allowed: BoolArray = np.where((origin >= 0)[:, None], problem.permitted[serves], True)
    return allowed


def prices_of(problem: Problem) -> Parts:
    """Return the prices of parts of a problem.

    Raises:
        UnfitError: there are none.
    """
    if problem.parts is None:
        raise UnfitError(
            "the profile has no prices of parts, or --max-parts 1 leaves none, so its ops cannot "
            "be split; prices were expected: profile the graph with --parts 2,4,8, and do not "
            "coarsen it."
        )
    return problem.parts
