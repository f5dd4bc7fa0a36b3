"""Proofs, found without a search, that no placement fits into memory.

Each proof compares a lower bound on the memory that is needed on some devices with the memory that
may be used there. If no proof is found, it may still be that no placement fits.
"""

from dataclasses import replace

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.problem import Problem

# Largest number of device sets that are checked. Constraints that pin ops can create many sets.
MOST_DEVICE_SETS = 256


def unavoidable_shortfall(problem: Problem) -> str | None:
    """Return a proof that no placement fits into memory, naming op and bytes; None without one."""
    for proof in (_large_group, _crowded_devices, _large_op):
        reason = proof(problem)
        if reason is not None:
            return reason
    return None


def unavoidable_shortfall_of_plans(problem: Problem) -> str | None:
    """Return a proof that no placement fits into memory, however ops and variables are split.

    The parts of a variable together are as large as the variable, and may use its devices.
    """
    graph = replace(problem.graph, colocation_group=np.arange(problem.num_ops))
    return _crowded_devices(replace(problem, graph=graph))


def _large_group(problem: Problem) -> str | None:
    """Compare each colocation group's variables with the largest device that may run the group."""
    graph, kept = problem.graph, _kept_bytes(problem)
    largest = np.where(problem.group_allowed, problem.capacity_bytes, -1.0).argmax(axis=1)
    short = kept - problem.capacity_bytes[largest]
    group = int(short.argmax()) if len(short) else -1
    if group < 0 or short[group] <= 0:
        return None
    op = _largest(problem, graph.groups[group])
    own = f"op {graph.names[op]!r} keeps"
    if graph.resident_bytes[op] < kept[group]:
        own = f"op {_with_bytes(problem, op)} and others that share its device keep"
    room = _room(problem, int(largest[group]))
    return f"{own} {int(kept[group]):,} bytes of variables, and {room}"


def _crowded_devices(problem: Problem) -> str | None:
    """Compare the variables that are confined to a set of devices with the memory of the set.

    These are Hall's conditions for variables that could be divided among devices. They are checked
    for the sets of devices on which groups may run, and for unions of these sets.
    """
    patterns, pattern = np.unique(problem.group_allowed, axis=0, return_inverse=True)
    kept = np.bincount(pattern.reshape(-1), _kept_bytes(problem), minlength=len(patterns))
    for devices in _unions(patterns):
        confined = np.logical_not((patterns & ~devices).any(axis=1))
        needed, room = kept[confined].sum(), problem.capacity_bytes[devices].sum()
        if needed > room:
            inside = confined[pattern.reshape(-1)][problem.graph.colocation_group]
            names = [problem.machine.devices[index].name for index in np.flatnonzero(devices)]
            return (
                f"variables that may only be on {', '.join(names)} take {int(needed):,} bytes, "
                f"but {int(room):,} bytes may be used there; the largest are those of op "
                f"{_with_bytes(problem, _largest(problem, np.flatnonzero(inside)))}"
            )
    return None


def _large_op(problem: Problem) -> str | None:
    """Compare the memory that is needed while an op runs with the memory of its device.

    The device holds the op's inputs and outputs, the variables of its colocation group, and the
    variables that no other device may hold. Aliases do not count, nor do tensors that may be stored
    in a variable.
    """
    group = problem.graph.colocation_group
    passing, kept = _passing_bytes(problem), _kept_bytes(problem)
    is_bound = ~problem.has_choice
    bound = (problem.group_allowed & is_bound[:, None]).T @ kept
    resident = np.where(is_bound[group], 0.0, kept[group])
    needed = passing[:, None] + resident[:, None] + bound
    # An op that takes no time holds nothing.
    short = np.where(problem.duration_us > 0, needed - problem.capacity_bytes, -np.inf)
    least = np.where(problem.allowed, short, np.inf).min(axis=1, initial=np.inf)
    op = int(least.argmax()) if len(least) else -1
    if op < 0 or least[op] <= 0:
        return None
    where = int(np.where(problem.allowed[op], short[op], np.inf).argmin())
    variables = int(needed[op, where] - passing[op])
    return (
        f"op {problem.graph.names[op]!r} needs {int(passing[op]):,} bytes for its inputs and "
        f"outputs, in addition to {variables:,} bytes of variables, and {_room(problem, where)}"
    )


def _kept_bytes(problem: Problem) -> FloatArray:
    """Return the bytes that each colocation group holds throughout the step, `[num_groups]`."""
    graph = problem.graph
    return np.bincount(
        graph.colocation_group, graph.resident_bytes, minlength=graph.num_groups
    ).astype(np.float64)


def _passing_bytes(problem: Problem) -> FloatArray:
    """Return the least bytes of each op's inputs and outputs while it runs, `[num_ops]`."""
    graph = problem.graph
    is_alias = graph.alias_source >= 0
    made = np.where(is_alias, 0, graph.held_bytes)
    is_elsewhere = graph.consumer_on_host | is_alias[graph.consumer_tensor]
    taken = np.where(is_elsewhere, 0, graph.held_bytes[graph.consumer_tensor])
    outputs = np.bincount(graph.tensor_producer, made, minlength=graph.num_ops)
    inputs = np.bincount(graph.consumers, taken, minlength=graph.num_ops)
    passing: FloatArray = (outputs + inputs).astype(np.float64)
    return passing


def _unions(patterns: BoolArray) -> list[BoolArray]:
    """Return sets of devices and unions of them, about `MOST_DEVICE_SETS` at most, small first."""
    found = {tuple(row) for row in patterns.tolist()}
    for row in sorted(found, key=sum):
        found |= {tuple(np.logical_or(row, other).tolist()) for other in found}
        if len(found) > MOST_DEVICE_SETS:
            break
    return [np.array(row) for row in sorted(found, key=lambda row: (sum(row), row))]


def _largest(problem: Problem, ops: IntArray) -> int:
    """Return the op with most resident bytes."""
    return int(ops[problem.graph.resident_bytes[ops].argmax()])


def _with_bytes(problem: Problem, op: int) -> str:
    return f"{problem.graph.names[op]!r} ({int(problem.graph.resident_bytes[op]):,} bytes)"


def _room(problem: Problem, device: int) -> str:
    name, room = problem.machine.devices[device].name, int(problem.capacity_bytes[device])
    return f"{name}, the largest device that may run it, has {room:,} bytes to use"
