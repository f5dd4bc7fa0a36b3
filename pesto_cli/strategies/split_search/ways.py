"""Ways to split the ops of a step: the starts of the search that splits ops.

The ways are pure forms: parts of the batch on meshes (data parallelism, pipelines, stages of layers
with parts within), variables that are split or mirrored, split weights (tensor parallelism), and
single ops of the critical path that are split (FastT). Meshes with equally many parts share a plan,
so the step is split once for all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.data.split_start import SplitStart
from pesto_cli.evaluation.simulator import replay
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import DataParallel, VariableLayout, batch_plan, dealt
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.intra_op import IntraOp
from pesto_cli.strategies.meshes import Mesh
from pesto_cli.strategies.os_dpos import OsDpos
from pesto_cli.strategies.tensor_parallel import TensorParallel

# Estimated times for each op: to choose a plan, to split the op into a part, and to schedule a part
# on a mesh. The number of ways that are tried follows from them, so it is the same in each run.
PLAN_US, PART_US, MESH_US = 90.0, 25.0, 4.0
# A strategy gets at least this share of the time limit: the estimates are too short for graphs of
# few ops.
LEAST_SHARE = 0.02
# In a short time limit, one way takes more than this share.
LARGE_SHARE = 0.2
# A refinement takes about this many seconds for a unit of work of a deterministic search. Measured
# on graphs of 10,000 to 40,000 ops on four GPUs.
SECONDS_OF_UNIT = 2.5


def parts_us(num_parts: int, num_meshes: int = 1) -> float:
    """Return the estimated time to split an op into parts and to schedule these, in us."""
    return num_parts * (PART_US + MESH_US * num_meshes)


def plan_us(problem: Problem) -> float:
    """Return the estimated time for each op to choose a plan with a part for each accelerator.

    The time to split the op and to schedule the parts is included; in us.
    """
    return PLAN_US + parts_us(len(accelerators(problem)))


def is_short(problem: Problem, limits: Limits) -> bool:
    """Whether a time limit is too short to construct more than a few schedules with split ops."""
    return share_of(plan_us(problem), problem, limits) > LARGE_SHARE


def share_of(us_per_op: float, problem: Problem, limits: Limits) -> float:
    """Return an estimated time for each op as a share of a time limit."""
    estimated_s = _seconds(us_per_op, problem)
    if limits.deterministic:
        estimated_s /= SECONDS_OF_UNIT
    return estimated_s / limits.time_limit_s if limits.time_limit_s else math.inf


def limits_of(way: "Way", problem: Problem, limits: Limits) -> Limits:
    """Return the limits of one way: its estimated time, or LEAST_SHARE of the time limit."""
    estimated_s = _seconds(way.us_per_op(problem), problem)
    return replace(limits, time_limit_s=max(estimated_s, LEAST_SHARE * limits.time_limit_s))


def _seconds(us_per_op: float, problem: Problem) -> float:
    return us_per_op * problem.num_ops / 1e6


class Way(Protocol):
    """A way to split ops and to schedule them."""

    @property
    def name(self) -> str:
        """The name of the way in notes."""

    def us_per_op(self, problem: Problem) -> float:
        """Return the estimated time for each op of the problem, in us."""

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        """Return a solution with split ops, and its source, as progress reports name it.

        Raises:
            BadInputError: the step cannot be split so.
        """


@dataclass(frozen=True, eq=False)
class AsBefore:
    """The plan and the placement of the warm start."""

    name: ClassVar[str] = "split warm start"
    start: SplitStart

    def us_per_op(self, problem: Problem) -> float:
        """Return 0: a warm start is always used."""
        return 0.0

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        """Split and replay."""
        split = rewritten(problem, self.start.plan)
        schedule = replay(split.problem, self.start.placement)
        solution = split.solution(problem, schedule)
        return self.name, replace(solution, lower_bound_us=all_plans_bound_us(problem))


@dataclass(frozen=True)
class OnMeshes:
    """Parts of the batch on the best of some meshes, which have equally many parts.

    hosts: see `Plan`; here also one for each device of a stage, if it has several micro-batches.
    """

    name: ClassVar[str] = "split batch"
    meshes: Sequence[Mesh]
    hosts: tuple[int, ...] = ()

    @property
    def num_parts(self) -> int:
        """Number of parts of each op."""
        return self.meshes[0].num_parts

    def us_per_op(self, problem: Problem) -> float:
        """Return the estimated time for each op of the problem, in us."""
        return PLAN_US + parts_us(self.num_parts, len(self.meshes))

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        """Split once, and schedule the parts on each mesh."""
        devices = self.meshes[0].devices(0, np.arange(self.num_parts))
        plan = replace(batch_plan(problem, devices.tolist()), hosts=self.hosts)
        split = rewritten(problem, plan)
        return min(
            ((str(mesh), dealt(problem, split, mesh)) for mesh in self.meshes),
            key=lambda built: built[1].objective,
        )


@dataclass(frozen=True)
class AsStrategy:
    """The solution of another strategy; num_plans: how many plans there is time for."""

    strategy: DataParallel | IntraOp | TensorParallel | OsDpos
    num_plans: int = 1

    @property
    def name(self) -> str:
        """The name of the strategy."""
        return self.strategy.name

    def us_per_op(self, problem: Problem) -> float:
        """Return the estimated time for each op of the problem, in us."""
        return self.num_plans * plan_us(problem)

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        """Call the strategy."""
        limits = limits_of(self, problem, context.limits)
        solution = self.strategy(problem, replace(context, limits=limits))
        layout = getattr(self.strategy, "variables", VariableLayout.WHOLE)
        is_whole = layout is VariableLayout.WHOLE
        return self.strategy.name if is_whole else f"{layout} variables", solution
