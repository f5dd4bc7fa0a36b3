"""Choose the sizes of parts so that all devices end their parts at about the same time.

Parts in proportion to the speeds of devices do not end together: inputs that cross a network reach
one device after the other, and parts of small ops take longer than their share. So the sizes are
corrected by the schedule: units of the inputs, such as images, move from the parts that end late to
those that end early.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.labels import Phase
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError, InfeasibleError
from pesto_cli.sharding.alternative import aligned_shares, shares_of
from pesto_cli.strategies.data_parallel import dealt_solution, input_extents
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.layout_program import balanced_units


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
    units = _units(problem, plan)
    for _ in range(num_rounds):
        corrected = with_units_moved(units, ends_us.max(axis=1))
        if (corrected == units).all():
            break
        units = corrected
        sized = resized(problem, plan, units.tolist())
        try:
            found.append(dealt_solution(problem, sized, device_of_part))
        except (BadInputError, InfeasibleError):  # a part has no price, or no device
            break
        ends_us = _ends_us(problem, found[-1])
    return min(found, key=lambda each: each.objective)


def with_units_moved(units: IntArray, end_us: FloatArray) -> IntArray:
    """Return the numbers of units for which the latest end is as early as possible.

    Each unit takes an equal share of the time until the end of its part, and each part keeps one.

    units: `[num_parts]`, the number of units of each part now.
    end_us: `[num_parts]`, when each part ends now.
    """
    return np.array(shares_of(int(units.sum()), (units / end_us).tolist(), least=1))


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


def _units(problem: Problem, plan: Plan) -> IntArray:
    """Return how many units of the inputs, such as images, each part has, `[num_parts]`.

    They are the units of most ops; ops whose parts are copies do not count.
    """
    num_parts = plan.num_parts
    extents = input_extents(problem, num_parts)

    def in_units(sizes: tuple[int, ...]) -> tuple[int, ...]:
        for extent in extents:
            size, left = divmod(sum(sizes), extent)
            if not left and not any(each % size for each in sizes):
                return tuple(each // size for each in sizes)
        return sizes

    copies = (1,) * num_parts
    sizes = [each.sizes for each in plan.choices.values() if each.num_parts == num_parts]
    found = Counter(in_units(each) for each in sizes if each != copies)
    return np.array(max(found, key=lambda each: found[each], default=copies))


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
