"""What-if analysis: the step if one op that a plan splits were whole, or had more parts.

Ops that must be split alike change with it (`sharding/split_alike.py`). Every op is placed by the
first of these rules that applies:

1. an op that was there before, by its name, keeps its device and its place in the order;
2. an op that becomes whole takes those of its first part;
3. if each part of an op has a device of its own, new parts are on accelerators that have no part of
   it, in the order of the machine;
4. further parts begin again: part i is on the device of part i mod n, and follows it in the order;
5. an op that the plan adds is on the device with which it exchanges most bytes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pesto_cli.data.graph import IntArray
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError, InfeasibleError
from pesto_cli.evaluation.simulator import replay
from pesto_cli.sharding.decisions import MAX_PARTS, Decision, decisions
from pesto_cli.sharding.problems import Rewritten, prices_of, rewritten
from pesto_cli.sharding.split_alike import split_alike
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.placement_mapping import UNPLACED, completed


def what_if_parts(solution: Solution, op: int) -> dict[int, Solution | str]:
    """Return the solution with an op whole, and with the op in the next larger number of parts.

    Args:
        solution: a solution whose plan splits the op.
        op: an op of the original graph.

    Returns:
        {number of parts: solution, or why there is none}, first for 1. If no larger number that
        the op can have is priced, the second one is twice the present number, or the largest that
        the op can have; if it has that many parts already, one more. Memory may be exceeded.
    """
    number, why_not = _larger_number(solution, op)
    return {1: _tried(solution, op, 1), number: why_not or _tried(solution, op, number)}


def with_parts(solution: Solution, op: int, num_parts: int) -> Solution:
    """Return the solution that results if an op has another number of parts; see this module.

    Args:
        solution: a solution whose plan splits the op.
        op: an op of the original graph.
        num_parts: 1 makes the op whole. Parts have equal sizes.

    Raises:
        BadInputError: the changed plan does not fit the graph, or a part has no price.
        InfeasibleError: an op that the changed plan adds can run on no device.
    """
    decided, plan = _decided(solution), _plan_of(solution)
    graph, choices = solution.asked.graph, dict(plan.choices)
    for each in split_alike(graph, decided, op, is_whole=num_parts == 1):
        del choices[graph.names[each]]
        if num_parts > 1:
            way = decided[each].alternative
            choices[graph.names[each]] = Choice(way.name, way.equal_sizes(num_parts))
    hosts, islands = (
        groups and tuple(groups[part % len(groups)] for part in range(max(num_parts, len(groups))))
        for groups in (plan.hosts, plan.islands)
    )
    changed = replace(plan, choices=choices, hosts=hosts, islands=islands)
    split = rewritten(solution.asked, changed)
    placement = completed(split.problem, *_carried(solution, split))
    return split.solution(solution.asked, replay(split.problem, placement))


def _tried(solution: Solution, op: int, num_parts: int) -> Solution | str:
    try:
        return with_parts(solution, op, num_parts)
    except (BadInputError, InfeasibleError) as error:
        return str(error)


def _larger_number(solution: Solution, op: int) -> tuple[int, str]:
    """Return the next larger number of parts, and why it is impossible; empty if it is priced."""
    decided, numbers = _decided(solution), prices_of(solution.asked).numbers
    changed = split_alike(solution.asked.graph, decided, op, is_whole=False)
    sizes = (decided[each].alternative.size for each in changed)
    most = min([MAX_PARTS, *(size for size in sizes if size is not None)])
    now = len(decided[op].sizes)
    priced = [number for number in numbers if now < number <= most]
    if priced:
        return priced[0], ""
    if most == now:
        return now + 1, f"it and the ops that must be split alike can have at most {most} parts"
    number = min(2 * now, most)
    wanted = ",".join(map(str, sorted({*numbers, number})))
    return number, f"the profile has no prices for it: profile the graph with --parts {wanted}"


def _carried(solution: Solution, split: Rewritten) -> tuple[IntArray, IntArray]:
    """Return the device and the rank of each op of a split problem, `[num_ops]` each.

    `UNPLACED` says that an op has no device yet, or no place in the order of its device.
    """
    before, schedule = solution.problem.graph.index_of, solution.schedule
    device, rank = np.full((2, split.problem.num_ops), UNPLACED, dtype=np.int64)
    first = _first_of_parts(solution)
    for op, name in enumerate(split.problem.graph.names):
        origin, part = int(split.origin[op]), max(0, int(split.part[op]))
        if name in before:
            like = before[name]
            device[op] = schedule.device[like]
        elif origin in first:
            like = first[origin][part % len(first[origin])]
            present = schedule.device[first[origin]].tolist()
            devices = _devices(solution.asked, origin, present)
            device[op] = devices[part % len(devices)]
        else:
            continue
        if device[op] == schedule.device[like]:
            rank[op] = schedule.rank[like]
    return device, rank


def _first_of_parts(solution: Solution) -> Mapping[int, Sequence[int]]:
    """Return the first op of each part of each op that is split: {op index: `[num_parts]`}."""
    assert solution.part is not None
    found = defaultdict[int, list[int]](list)
    rows = np.flatnonzero(solution.part >= 0)
    for op in rows[np.argsort(solution.part[rows], kind="stable")].tolist():
        parts = found[int(solution.origin[op])]
        if len(parts) == solution.part[op]:
            parts.append(op)
    return found


def _devices(problem: Problem, op: int, present: Sequence[int]) -> Sequence[int]:
    """Return the devices of the parts of an op, beginning with those of its present parts."""
    if len(set(present)) < len(present):
        return present
    others = (each for each in accelerators(problem) if problem.allowed[op, each])
    return list(dict.fromkeys([*present, *others]))


def _decided(solution: Solution) -> Mapping[int, Decision]:
    asked, parts = solution.asked, prices_of(solution.asked)
    specs = parts.op_specs
    return decisions(_plan_of(solution), asked.graph, specs)


def _plan_of(solution: Solution) -> Plan:
    assert solution.plan is not None
    return solution.plan
