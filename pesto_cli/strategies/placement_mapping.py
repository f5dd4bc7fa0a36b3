"""Map a placement to another graph by op names, as a warm start after a model has changed.

The device of a colocation group comes from the first of these rules that gives an allowed device:

1. by name: the device that has most of the group's work in the old placement;
2. by scope: the device with most work in the innermost scope that has ops placed by name;
3. by neighbours: the device with which the group exchanges most bytes, counting placed ops;
4. by default: the device with the least work so far.

Ops placed by name keep their order. The others are inserted as soon as their inputs are produced.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray, OpGraph
from pesto_cli.data.labels import Path, Phase
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule, objective
from pesto_cli.data.symmetry import interchangeable
from pesto_cli.diff import MappedPlacement
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import PlacementFile
from pesto_cli.strategies.order import ordered

Scope = tuple[bool, Path]
"""Whether the ops are gradients, and their scope."""

Rule = Callable[[Problem, IntArray], IntArray]
"""Returns the device of each group, given that of some groups; `UNPLACED` if there is none."""

UNPLACED = NONE = -1
# Minimal weights, so that ops of zero time and control edges decide if nothing else does.
LEAST_US, LEAST_BYTES = 1e-6, 1


def map_placement(placed: PlacementFile, problem: Problem) -> MappedPlacement:
    """Map a placement of an earlier graph, or of another machine, to a problem."""
    old_device, old_rank = _old(placed, problem)
    rules = (_by_scope, _by_neighbours, _by_default)
    placement, num_placed = _completed(problem, old_device, old_rank, rules)
    by_scope, by_neighbours, by_default = np.diff(num_placed).tolist()
    used = {placed.devices[index] for index in placed.device}
    lost = tuple(sorted(used - problem.machine.index_of.keys()))
    return MappedPlacement(placement, num_placed[0], by_scope, by_neighbours, by_default, lost)


def completed(problem: Problem, device: IntArray, rank: IntArray) -> Placement:
    """Complete a placement of some ops by rules 3 and 4; the ops that were placed keep their order.

    Args:
        problem: the problem.
        device: the device of each op, `[num_ops]`, or `UNPLACED`.
        rank: the place of each op in the order of its device, `[num_ops]`; `UNPLACED` if an op is
            to be inserted as soon as its inputs are produced.
    """
    is_allowed = problem.allowed[np.arange(problem.num_ops), device] & (device != UNPLACED)
    device = np.where(is_allowed, device, UNPLACED)
    return _completed(problem, device, rank, (_by_neighbours, _by_default))[0]


def _completed(
    problem: Problem, old_device: IntArray, old_rank: IntArray, rules: Sequence[Rule]
) -> tuple[Placement, list[int]]:
    """Return a placement, and the number of ops that keep their device or that a rule placed.

    The numbers are `[1 + len(rules)]`, each with those before it.
    """
    group_of_op = problem.graph.colocation_group
    group = _by_name(problem, old_device)
    is_kept = (old_device != UNPLACED) & (group[group_of_op] == old_device)
    num_placed = [int(is_kept.sum())]
    for rule in rules:
        group = rule(problem, group)
        num_placed.append(int((group[group_of_op] != UNPLACED).sum()))
    device = group[group_of_op]
    rank = _inserted(problem, device, np.where(is_kept, old_rank, UNPLACED))
    return Placement(device, rank), num_placed


def start_from(placed: PlacementFile, simulator: Simulator) -> MappedPlacement:
    """Map a placement as `map_placement`, with the order of a list schedule if that is better."""
    mapped = map_placement(placed, simulator.problem)
    old, listed = simulator.replay(mapped.placement), ordered(simulator, mapped.placement.device)
    if objective(simulator.problem, listed) < objective(simulator.problem, old):
        return replace(mapped, placement=listed.placement)
    return mapped


def keep_old_devices(simulator: Simulator, schedule: Schedule, old: Placement) -> Schedule:
    """Exchange interchangeable devices so that as many ops as possible keep their old device."""
    from scipy.optimize import linear_sum_assignment

    problem = simulator.problem
    devices = np.arange(problem.num_devices)
    for members in interchangeable(problem):
        # The number of ops by new and old device. On a tie, a device keeps its name.
        shared = np.array(
            [
                [((schedule.device == now) & (old.device == then)).sum() for then in members]
                for now in members
            ]
        )
        _, then = linear_sum_assignment(shared + np.eye(len(members)) / 2, maximize=True)
        devices[members] = np.array(members)[then]
    renamed = simulator.replay(Placement(devices[schedule.device], schedule.rank))
    return min(schedule, renamed, key=lambda each: (objective(problem, each), each is schedule))


def _old(placed: PlacementFile, problem: Problem) -> tuple[IntArray, IntArray]:
    """Return the old device and the old rank of each op, `[num_ops]` each; else `UNPLACED`.

    An op that had no device, or may not run on its old device, is `UNPLACED`.
    """
    known = [problem.machine.index_of.get(name, UNPLACED) for name in placed.devices]
    device, rank = np.full((2, problem.num_ops), UNPLACED, dtype=np.int64)
    for name, old, place in _rows(placed):
        op, where = problem.graph.index_of.get(name), known[old]
        if op is not None and where != UNPLACED and problem.allowed[op, where]:
            device[op], rank[op] = where, place
    return device, rank


def _rows(placed: PlacementFile) -> Iterator[tuple[str, int, int]]:
    """Yield (op of the graph, device, rank); of an op that is split, those of its first part."""
    rows = zip(placed.device, placed.rank, strict=True)
    if placed.parts is None:
        for name, (device, rank) in zip(placed.names, rows, strict=True):
            yield name, device, rank
        return
    seen: set[int] = set()
    parts = zip(placed.parts.origin, placed.parts.part, rows, strict=True)
    for origin, _, (device, rank) in sorted(parts):
        if origin >= 0 and origin not in seen:
            seen.add(origin)
            yield placed.parts.ops[origin], device, rank


def _by_name(problem: Problem, old_device: IntArray) -> IntArray:
    """Return each group's device with most of its work, or `UNPLACED`, `[num_groups]`."""
    old = np.flatnonzero(old_device != UNPLACED)
    work_us = np.zeros((problem.graph.num_groups, problem.num_devices))
    where = (problem.graph.colocation_group[old], old_device[old])
    np.add.at(work_us, where, _work_us(problem)[old])
    return _most(work_us)


def _by_scope(problem: Problem, group: IntArray) -> IntArray:
    """Place groups by the scope of their longest op."""
    graph, work_us = problem.graph, _work_us(problem)
    device = group[graph.colocation_group]
    of_scope: dict[Scope, FloatArray] = defaultdict(lambda: np.zeros(problem.num_devices))
    scopes = _scopes(graph)
    for op in np.flatnonzero(device != UNPLACED).tolist():
        for scope in _inner_first(scopes[op]):
            of_scope[scope][device[op]] += work_us[op]
    group = group.copy()
    for index in np.flatnonzero(group == UNPLACED).tolist():
        longest = max(graph.groups[index].tolist(), key=work_us.__getitem__)
        allowed = problem.group_allowed[index]
        found = (
            of_scope[scope] * allowed
            for scope in _inner_first(scopes[longest])
            if scope in of_scope
        )
        group[index] = next((int(work.argmax()) for work in found if work.any()), UNPLACED)
    return group


def _scopes(graph: OpGraph) -> list[Scope]:
    """Return the scope of each op, `[num_ops]`; a gradient has the scope of its forward op."""
    in_model = graph.labels.paths(graph.names)
    is_gradient = (graph.labels.phase == Phase.BACKWARD).tolist()
    return [
        (gradient, path[:-1] if gradient else tuple(name.split("/")[:-1]))
        for name, path, gradient in zip(graph.names, in_model, is_gradient, strict=True)
    ]


def _inner_first(scope: Scope) -> Iterator[Scope]:
    """Return a scope and the scopes around it, the innermost first."""
    is_gradient, path = scope
    return ((is_gradient, path[:depth]) for depth in range(len(path), 0, -1))


def _by_neighbours(problem: Problem, group: IntArray) -> IntArray:
    """Place groups by their neighbours, in topological and then in reverse order.

    Groups that were just placed count as neighbours.
    """
    graph, group = problem.graph, group.copy()
    exchanged = _exchanged_bytes(problem, group)
    order = graph.colocation_group[graph.topological_order].tolist()
    for index in [*order, *reversed(order)]:
        if group[index] == UNPLACED:
            num_bytes = np.zeros(problem.num_devices)
            for other, size in exchanged[index]:
                if group[other] != UNPLACED:
                    num_bytes[group[other]] += size
            group[index] = _most(num_bytes * problem.group_allowed[index])
    return group


def _exchanged_bytes(problem: Problem, group: IntArray) -> dict[int, list[tuple[int, int]]]:
    """Return (other group, bytes) for each edge of each group that is not placed yet."""
    graph = problem.graph
    size = np.append(graph.tensor_bytes[graph.consumer_tensor], [0] * len(graph.control_edges))
    tail = np.append(graph.tensor_producer[graph.consumer_tensor], graph.control_edges[:, 0])
    head = np.append(graph.consumers, graph.control_edges[:, 1])
    one, other = graph.colocation_group[tail], graph.colocation_group[head]
    ends = (np.append(one, other), np.append(other, one), np.append(size, size) + LEAST_BYTES)
    open_ends = group[ends[0]] == UNPLACED
    edges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for index, neighbour, num_bytes in zip(
        *(column[open_ends].tolist() for column in ends), strict=True
    ):
        edges[index].append((neighbour, num_bytes))
    return edges


def _by_default(problem: Problem, group: IntArray) -> IntArray:
    graph, group = problem.graph, group.copy()
    work_us = np.bincount(graph.colocation_group, _work_us(problem), graph.num_groups)
    load_us = np.bincount(group[group != UNPLACED], work_us[group != UNPLACED], problem.num_devices)
    for index in np.flatnonzero(group == UNPLACED).tolist():
        group[index] = np.where(problem.group_allowed[index], load_us, np.inf).argmin()
        load_us[group[index]] += work_us[index]
    return group


def _work_us(problem: Problem) -> FloatArray:
    return np.maximum(problem.min_duration_us, LEAST_US)


def _most(weight: FloatArray) -> IntArray:
    """Return the first device of greatest weight in each row, or `UNPLACED` if all are 0."""
    return np.where(weight.any(axis=-1), weight.argmax(axis=-1), UNPLACED)


def _inserted(problem: Problem, device: IntArray, old_rank: IntArray) -> IntArray:
    """Return ranks that respect the graph and, where the graph allows it, the old order.

    The result is `[num_ops]`. Ops are taken in a topological order in which a kept op also waits
    for the kept op before it on its device. If only ops that wait for a kept op remain, the one
    with the earliest place in the old order is next.
    """
    successors = problem.graph.successors
    waits_for = problem.graph.predecessors.degree.tolist()
    after, place = _old_order(device, old_rank)
    is_done, is_behind = np.zeros((2, problem.num_ops), dtype=np.bool_)
    is_behind[[op for op in after if op >= 0]] = True
    ready: list[tuple[float, int]] = []
    blocked: list[tuple[float, int]] = []

    def wait_over(op: int) -> None:
        if waits_for[op] == 0:
            heapq.heappush(blocked if is_behind[op] else ready, (place[op], op))

    for op in range(problem.num_ops):
        wait_over(op)
    next_rank = [0] * problem.num_devices
    rank = np.zeros(problem.num_ops, dtype=np.int64)
    while ready or blocked:
        is_in_turn = bool(ready)
        _, op = heapq.heappop(ready or blocked)
        if is_done[op]:
            continue
        is_done[op] = True
        rank[op] = next_rank[device[op]]
        next_rank[device[op]] += 1
        for head in successors[op].tolist():
            waits_for[head] -= 1
            if old_rank[head] == UNPLACED:
                place[head] = max(place[head], place[op])
            wait_over(head)
        follower = after[op] if is_in_turn else NONE
        while follower != NONE and is_done[follower]:
            follower = after[follower]
        if follower != NONE:
            is_behind[follower] = False
            wait_over(follower)
    return rank


def _old_order(device: IntArray, old_rank: IntArray) -> tuple[list[int], list[float]]:
    """Return the next kept op on each op's device, and the op's place in the order, as a share.

    Both are `[num_ops]`; `NONE` means that there is no next op.
    """
    after, place = [NONE] * len(device), [0.0] * len(device)
    for index in np.unique(device).tolist():
        kept = np.flatnonzero((device == index) & (old_rank != UNPLACED))
        queue = kept[np.argsort(old_rank[kept], kind="stable")].tolist()
        for op, follower in pairwise(queue):
            after[op] = follower
        for number, op in enumerate(queue):
            place[op] = number / len(queue)
    return after, place
