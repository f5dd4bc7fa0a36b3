"""What a solution decides about ops: whole or split, and where (HeteroG's Table 2, FastT's 5)."""

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from pesto_cli.bench.record import Decisions, LongOp
from pesto_cli.data.columns import BoolArray, FloatArray, IntArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Phase, Role
from pesto_cli.data.plan import MIRRORED, WHOLE_OPS, Choice
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.devices import accelerators

# Enough for all convolutions of VGG-19.
NUM_LONGEST = 20
# The units of parts may differ by one between devices that have equally large parts.
ROUNDING = 1.0


def decisions_of(solution: Solution) -> Decisions:
    """Return the decisions of a solution for the ops of the problem that was asked."""
    asked, graph = solution.asked, solution.asked.graph
    choices = (solution.plan or WHOLE_OPS).choices
    computes = graph.labels.has_role(Role.COMPUTE) & (graph.labels.phase != Phase.UPDATE)
    is_split = np.array([name in choices for name in graph.names], dtype=np.bool_)
    units, work_us = _units(solution, choices), asked.min_duration_us
    devices = [device.name for device in asked.machine.devices]
    whole_on = Counter(devices[place] for place in units[computes & ~is_split].argmax(axis=1))
    split_units = units[computes & is_split][:, accelerators(asked)]
    is_even = split_units.max(axis=1) - split_units.min(axis=1) <= ROUNDING
    split_us = defaultdict[str, float](float)
    for op in np.flatnonzero(computes & is_split).tolist():
        split_us[graph.types[op]] += float(work_us[op])
    return Decisions(
        devices=devices,
        whole=dict(whole_on),
        even=int(is_even.sum()),
        uneven=int((~is_even).sum()),
        variables=_variables(graph, choices),
        split_work_us=dict(sorted(split_us.items(), key=lambda each: -each[1])),
        longest=[_long_op(asked, op, choices) for op in _longest(asked, computes)],
    )


def _units(solution: Solution, choices: Mapping[str, Choice]) -> FloatArray:
    """Return the units of each op that each device has, `[num_ops, num_devices]`.

    A whole op is one unit.
    """
    graph, schedule = solution.asked.graph, solution.schedule
    units = np.zeros((graph.num_ops, solution.asked.num_devices))
    part: IntArray | None = solution.part
    for op, origin in enumerate(solution.origin.tolist()):
        if origin < 0 or solution.problem.graph.types[op] != graph.types[origin]:
            continue
        choice = choices.get(graph.names[origin])
        is_part = choice is not None and part is not None and part[op] >= 0
        size = choice.sizes[part[op]] if choice and part is not None and is_part else 1
        units[origin, schedule.device[op]] += size
    return units


def _variables(graph: OpGraph, choices: Mapping[str, Choice]) -> dict[str, int]:
    """Return how many variables are whole, split and mirrored."""
    found = Counter[str]()
    for op in np.flatnonzero(graph.labels.has_role(Role.VARIABLE)).tolist():
        choice = choices.get(graph.names[op])
        layout = "whole" if choice is None else choice.alternative
        found[layout if layout in ("whole", MIRRORED) else "split"] += 1
    return dict(found)


def _longest(problem: Problem, computes: BoolArray) -> list[int]:
    """Return the longest ops of each type, by decreasing time."""
    work_us, types = problem.min_duration_us, problem.graph.types
    seen, found = Counter[str](), list[int]()
    for op in np.argsort(-work_us, kind="stable").tolist():
        if computes[op] and seen[types[op]] < NUM_LONGEST:
            seen[types[op]] += 1
            found.append(op)
    return found


def _long_op(problem: Problem, op: int, choices: Mapping[str, Choice]) -> LongOp:
    graph = problem.graph
    choice = choices.get(graph.names[op])
    return LongOp(
        name=graph.names[op],
        type=graph.types[op],
        time_us=float(problem.min_duration_us[op]),
        weight_bytes=sum(int(graph.resident_bytes[each]) for each in _variables_read(graph, op)),
        num_parts=1 if choice is None else choice.num_parts,
    )


def _variables_read(graph: OpGraph, op: int) -> set[int]:
    """Return the variables whose values an op takes, directly or through a read."""
    before = {*graph.predecessors[op].tolist()}
    before |= {each for other in before for each in graph.predecessors[other].tolist()}
    return {each for each in before if graph.resident_bytes[each] > 0}
