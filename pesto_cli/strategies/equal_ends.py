"""Choose the sizes of parts so that all devices end their parts at about the same time.

Parts in proportion to the speeds of devices do not end together: inputs that cross a network reach
one device after the other, and parts of small ops take longer than their share. So the sizes are
corrected by the schedule: each is divided by the time at which its device ends.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pesto_cli.data.columns import FloatArray
from pesto_cli.data.labels import Phase
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError
from pesto_cli.sharding.alternative import aligned_shares
from pesto_cli.strategies.data_parallel import dealt_solution
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.layout_program import balanced_units

# Ends count as equal if they differ by less than this factor, because parts have whole rows.
TOLERANCE = 1.02


def with_equal_ends(problem: Problem, solution: Solution, num_rounds: int) -> Solution:
    """Return the best of a solution with split ops and of those with corrected sizes of parts.

    The solution itself is returned if an accelerator has several parts of an op, or a part several
    accelerators, as in a pipeline.

    num_rounds: how often sizes are corrected.
    """
    found, plan, ends_us = [solution], solution.plan, _ends_us(problem, solution)
    has_one_each = (ends_us > 0).sum(axis=1).tolist() == [1] * len(ends_us)
    if plan is None or not has_one_each or (ends_us > 0).sum(axis=0).max() > 1:
        return solution
    device_of_part = np.array(accelerators(problem))[ends_us.argmax(axis=1)].tolist()
    weights = _shares(plan)
    for _ in range(num_rounds):
        end_us = ends_us.max(axis=1)
        if end_us.max() < TOLERANCE * end_us.min():
            break
        weights = weights / end_us
        plan = resized(problem, plan, weights.tolist())
        try:
            found.append(dealt_solution(problem, plan, device_of_part))
        except BadInputError:  # a part is smaller than those with a price
            break
        ends_us = _ends_us(problem, found[-1])
    return min(found, key=lambda each: each.objective)


def _ends_us(problem: Problem, solution: Solution) -> FloatArray:
    """Return when each accelerator ends its parts of the ops before the update, in us.

    The result is `[num_parts, num_accelerators]`; 0 without parts.
    """
    num_parts = 0 if solution.plan is None else solution.plan.num_parts
    ends_us = np.zeros((num_parts, problem.num_devices))
    if solution.part is not None:
        is_before = problem.graph.labels.phase[solution.origin] != Phase.UPDATE
        is_part = (solution.part >= 0) & (solution.origin >= 0) & is_before
        at = solution.part[is_part], solution.schedule.device[is_part]
        np.maximum.at(ends_us, at, solution.schedule.end_us[is_part])
    return ends_us[:, accelerators(problem)]


def _shares(plan: Plan) -> FloatArray:
    """Return the mean share of each part in the ops whose parts are no copies, `[num_parts]`."""
    equal = (1,) * plan.num_parts
    sizes = [each.sizes for each in plan.choices.values() if each.num_parts == plan.num_parts]
    sizes = [each for each in sizes if each != equal] or [equal]
    shares: FloatArray = np.mean([np.array(each) / sum(each) for each in sizes], axis=0)
    return shares


def resized(problem: Problem, plan: Plan, weights: Sequence[float]) -> Plan:
    """Return the plan with parts in proportion to weights, except those that the user asked for."""
    units = balanced_units(problem, weights)

    def changed(name: str, choice: Choice) -> Choice:
        # An alternative without a factor, such as copies, has sizes of 1.
        is_kept = name in problem.chosen.choices or set(choice.sizes) == {1}
        if is_kept or choice.num_parts != len(weights):
            return choice
        sizes = aligned_shares(sum(choice.sizes), weights, units)
        return replace(choice, sizes=sizes) if min(sizes) > 0 else choice

    return replace(plan, choices={name: changed(name, each) for name, each in plan.choices.items()})
