"""A way to split: the best placement of whole ops, with those ops split that leave devices idle.

If several whole ops run at the same time, splitting one of them gains little. An op that runs while
other devices are idle gains most. So the integer program of layouts chooses the ops, and the time
of a whole op counts divided by the number of accelerators that are busy while it runs. This is as
if the other ops filled all gaps that the parts leave. They do not, so one of the ways splits only
ops whose parts take clearly less time. The other ops stay where they are. FastT (Middleware '20,
Section 5.2) also begins with a placement, but splits one op of its critical path after another.
"""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.columns import FloatArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import UnfitError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.work import running_ops
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import best_solution
from pesto_cli.strategies.devices import accelerators, differ, on_hosts_used
from pesto_cli.strategies.intra_op import layouts_plan
from pesto_cli.strategies.layout_program import Exposed
from pesto_cli.strategies.meshes import Mesh, devices_of_equal_parts, weights_of_parts
from pesto_cli.strategies.order import in_order_of_whole_ops
from pesto_cli.strategies.part_devices import devices_of_parts
from pesto_cli.strategies.split_search.ways import limits_of, plan_us


@dataclass(frozen=True, eq=False)
class BesideWhole:
    """Take a solution with whole ops, split some of them, and keep the devices of the others.

    whole: the solution. exposed: which shares of the times of conversions count.
    margin: the time of a whole op counts divided by this, too.
    """

    whole: Solution
    exposed: Exposed
    margin: float = 1.0

    @property
    def name(self) -> str:
        """The name of the way in notes and progress reports."""
        return f"whole ops, {'few' if self.margin > 1 else 'some'} split"

    def us_per_op(self, problem: Problem) -> float:
        """Return the estimated time for each op of the problem, in us."""
        return plan_us(problem)

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        """Choose the ops, put part i on accelerator i of the hosts used, and order all ops.

        Raises:
            UnfitError: no op is worth splitting.
            OutOfTimeError: the time limit is too short.
        """
        placed, start_us = self.whole.first_parts()
        placed = np.where(placed < 0, problem.duration_us.argmin(axis=1), placed)
        near = on_hosts_used(problem, placed) or problem
        devices = devices_of_equal_parts(near)
        limits = limits_of(self, problem, context.limits)
        weights = weights_of_parts(near, devices, proportional=differ(near, devices))
        plan = layouts_plan(
            near, weights, self.exposed, limits, self.margin * busy_accelerators(self.whole)
        )
        if plan.choices == problem.chosen.choices:
            raise UnfitError(
                "no part is worth its conversions, because whole ops keep the devices busy; idle "
                "devices were expected: use another strategy."
            )
        split = rewritten(problem, plan)
        stage = np.zeros(split.problem.num_ops, dtype=np.int64)
        device = devices_of_parts(split, Mesh((tuple(devices),)), stage, placed)
        simulator = Simulator(split.problem)
        schedules = in_order_of_whole_ops(simulator, device, start_us[split.serves])
        return self.name, best_solution(problem, split, schedules)


def busy_accelerators(solution: Solution) -> FloatArray:
    """Return how many accelerators run ops while an op of the asked problem runs, on average.

    The result is `[asked.num_ops]`. The accelerator that runs the op is counted. An op without a
    duration has 1.
    """
    schedule, num_ops = solution.schedule, solution.asked.num_ops
    start_us, end_us = schedule.start_us, schedule.end_us
    is_busy = np.isin(schedule.device, accelerators(solution.problem)) & (end_us > start_us)
    if not is_busy.any():
        return np.ones(num_ops)
    instant_us, number = running_ops(start_us[is_busy], end_us[is_busy])
    # The time that all accelerators together have worked until each instant.
    worked_us = np.concatenate(([0.0], np.cumsum(number * np.diff(instant_us))))
    until_end_us, until_start_us = (
        np.interp(us, instant_us, worked_us) for us in (end_us, start_us)
    )
    during_us = until_end_us - until_start_us
    is_given = solution.origin >= 0
    of = solution.origin[is_given]
    sum_us = np.bincount(of, during_us[is_given], num_ops)
    took_us = np.bincount(of, (end_us - start_us)[is_given], num_ops)
    mean = np.divide(sum_us, took_us, out=np.ones(num_ops), where=took_us > 0)
    at_least_one: FloatArray = np.maximum(1.0, mean)
    return at_least_one
