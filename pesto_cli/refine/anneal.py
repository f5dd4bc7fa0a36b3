"""Simulated annealing over placement and order at once, in one numba kernel.

A state is a device for every op and an offset on its upward rank under that placement. With
makespan C_max that of the list schedule by rank + offset, e the share by which memory is exceeded
and T the duration of all transfers together, its cost is

    C_max (1 + penalty e) + TRANSFERS T

Most moves leave the makespan as it is; the last term tells those apart that leave links and devices
more room. A worse candidate is taken with probability exp(-increase / temperature) (Kirkpatrick et
al., 1983). The chance is drawn first, so that the simulation of a candidate is given up as soon as
it must end above what would be taken; what T adds is known before it begins.

Neighbours that exchange more with what has moved than with what has not follow it in every second
move (as one after the other moves by its gain in Fiduccia and Mattheyses, 1982): a group alone
leaves a ragged cut.
"""

from collections.abc import Sequence

import numpy as np

from pesto_cli.data.graph import Adjacency, FloatArray, IntArray, OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.memory import memory_columns, peak_held_bytes, surely_fits
from pesto_cli.evaluation.simulator import (
    Simulator,
    longest_tails,
    simulate,
    transfers_us,
)
from pesto_cli.kernels import kernel
from pesto_cli.refine.families import Families

# Chances, one after the other: move a group, a connected cluster, the end of a cut edge; swap two
# groups.
MOVES = np.cumsum([0.55, 0.22, 0.13, 0.10])
TRANSFERS = 0.05  # see above, and docs/search.md
CLUSTER_SIZE = 4.0  # mean of the exponential part
# The share of moves that neighbours follow, and about how many of these at most.
FOLLOWED = 0.5
MOST_FOLLOWERS = 50
NEAR = 1e-3  # how far apart ops start that change places: from this share of the makespan to all


class Chain:
    """A state that is annealed, and the best state that it has passed through."""

    def __init__(self, simulator: Simulator, families: Families, seed: Sequence[int]) -> None:
        problem, graph = simulator.problem, simulator.problem.graph
        self._problem = (
            simulator.kernel_graph,
            simulator.kernel_machine,
            simulator.kernel_waits,
            simulator.kernel_first,
            graph.topological_order,
            memory_columns(graph),
            graph.resident_bytes,
            problem.capacity_bytes,
            _may_exceed(problem),
        )
        self._can_move = len(families.units) > 0
        near = _neighbours(problem, families)
        self._moves = (
            (graph.groups.offsets, graph.groups.indices),
            problem.group_allowed,
            families.units,
            (near.offsets, near.indices, *_ties(graph, near)),
            (families.cumulative, families.family_offsets),
            (families.group_offsets, families.members),
            (problem.machine.latency_us, problem.machine.us_per_byte),
        )
        # Xorshift stands still at 0.
        self._random = np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)
        self._device = np.zeros(problem.num_ops, dtype=np.int64)
        self._offset = np.zeros(problem.num_ops)
        self._order = (np.zeros(problem.num_ops), np.zeros(problem.num_ops))  # starts, keys
        self._best = (self._device.copy(), self._offset.copy())
        # Makespan in us, and the share by which memory is exceeded: of the state, of the best.
        # Then the transfers of the state in us.
        self._score = np.full(5, np.inf)
        self.evaluations = 0

    def go_to(self, device: IntArray, offset: FloatArray) -> None:
        """Make this the state; the best one stays if it is better."""
        self._device[:], self._offset[:] = device, offset
        _visit(self._problem, self._state)

    @property
    def best(self) -> tuple[IntArray, FloatArray]:
        """Devices and rank offsets of the best state, both `[num_ops]`."""
        return self._best[0].copy(), self._best[1].copy()

    @property
    def objective(self) -> tuple[float, float]:
        """Sort key of the best state: by what share it exceeds the memory, then its makespan."""
        return float(self._score[3]), float(self._score[2])

    def anneal(self, steps: int, temperature_us: float, penalty: float, order: float) -> None:
        """Try moves.

        Args:
            steps: how many.
            temperature_us: see above.
            penalty: a state that exceeds the memory by a share e counts as (1 + penalty e) as long.
            order: the share of moves that change the order; the others change devices.
        """
        chances = MOVES * ((1.0 - order) if self._can_move else 0.0)
        _anneal(
            self._problem,
            self._moves,
            self._state,
            self._random,
            steps,
            chances,
            temperature_us,
            penalty,
        )
        self.evaluations += steps

    @property
    def _state(self) -> tuple[object, ...]:
        return (self._device, self._offset, self._order, self._best, self._score)


def _may_exceed(problem: Problem) -> bool:
    """Whether a device could be full at all: with every variable and a copy of every tensor."""
    everything = problem.graph.resident_bytes.sum() + problem.graph.held_bytes.sum()
    return bool((everything > problem.capacity_bytes).any())


def _neighbours(problem: Problem, families: Families) -> Adjacency:
    """For every colocation group, the movable ones that an edge joins it to."""
    graph = problem.graph
    movable = np.zeros(graph.num_groups, dtype=np.bool_)
    movable[families.units] = True
    edges = graph.colocation_group[graph.edges]
    edges = np.concatenate((edges, edges[:, ::-1]))
    edges = np.unique(edges[(edges[:, 0] != edges[:, 1]) & movable[edges[:, 1]]], axis=0)
    return Adjacency.from_edges(graph.num_groups, edges[:, 0], edges[:, 1])


def _ties(graph: OpGraph, near: Adjacency) -> tuple[FloatArray, FloatArray]:
    """For every row of the neighbours, how many tensors either takes of the other; their bytes."""
    sent = ~graph.consumer_on_host
    tensor, group = graph.consumer_tensor[sent], graph.colocation_group
    rows = (tensor, group[graph.tensor_producer[tensor]], group[graph.consumers[sent]])
    tensor, source, target = np.unique(np.column_stack(rows), axis=0).T
    pairs = np.repeat(np.arange(graph.num_groups), near.degree) * graph.num_groups + near.indices
    tensors, num_bytes = np.zeros(len(pairs)), np.zeros(len(pairs))
    for one, other in ((source, target), (target, source)):
        pair = one * graph.num_groups + other
        known = np.isin(pair, pairs)
        place = np.searchsorted(pairs, pair[known])
        np.add.at(tensors, place, 1.0)
        np.add.at(num_bytes, place, graph.tensor_bytes[tensor[known]])
    return tensors, num_bytes


@kernel
def _uniform(random):  # type: ignore[no-untyped-def]
    """In [0, 1), by xorshift64 (Marsaglia, 2003); a thread's own, unlike numpy's in numba."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return np.float64(x >> np.uint64(11)) / 9007199254740992.0


@kernel
def _below(random, count):  # type: ignore[no-untyped-def]
    return np.int64(_uniform(random) * count)


@kernel
def _draw(random, cumulative):  # type: ignore[no-untyped-def]
    """A row with the chances of `cumulative`; one more than there are if these do not reach 1."""
    chance = _uniform(random)
    row = 0
    while row < len(cumulative) and chance >= cumulative[row]:
        row += 1
    return row


@kernel
def _evaluate(problem, device, offset, limit_us):  # type: ignore[no-untyped-def]
    """Makespan, inf if the cost exceeds the limit; excess of memory; transfers; starts and keys."""
    graph, machine, waits, goes_first, order, memory, resident_bytes, capacity, may_exceed = problem
    num_ops = len(device)
    transfers = transfers_us(graph, machine, device)
    limit_us -= TRANSFERS * transfers  # of the makespan from here on
    duration, load = np.empty(num_ops), np.zeros(len(capacity))
    for op in range(num_ops):
        duration[op] = graph.duration_us[op, device[op]]
        load[device[op]] += duration[op]
    if load.max() > limit_us:
        return np.inf, 0.0, transfers, duration, duration
    tail = longest_tails(order, duration, graph, machine, device)
    key = np.empty(num_ops)
    for op in range(num_ops):
        if tail[op] > limit_us:
            return np.inf, 0.0, transfers, duration, key
        key[op] = -np.inf if goes_first[op] else -(tail[op] + offset[op])
    start, end, rank, tensor, dst, sent, arrived = simulate(
        graph, machine, waits, device, key, order[:0], tail, limit_us
    )
    makespan = 0.0
    for op in range(num_ops):
        if rank[op] < 0:
            return np.inf, 0.0, transfers, duration, key
        makespan = max(makespan, end[op])
    excess = 0.0
    if may_exceed and makespan <= limit_us:
        resident = np.zeros(len(capacity), np.int64)
        for op in range(num_ops):
            resident[device[op]] += resident_bytes[op]
        excess = _excess(memory, device, start, end, tensor, dst, sent, arrived, resident, capacity)
    return makespan, excess, transfers, start, key


@kernel
def _excess(memory, device, start, end, tensor, dst, sent, arrived, resident, capacity):  # type: ignore[no-untyped-def]
    """The share by which peaks exceed capacities, all devices together."""
    if surely_fits(memory, device, start, end, tensor, dst, sent, arrived, resident, capacity):
        return 0.0
    peak = peak_held_bytes(memory, device, start, end, tensor, dst, sent, arrived, resident)
    excess = 0.0
    for here in range(len(capacity)):
        if peak[here] > capacity[here]:
            excess += (peak[here] - capacity[here]) / (capacity[here] + 1.0)
    return excess


@kernel
def _cost(makespan, excess, transfers, penalty):  # type: ignore[no-untyped-def]
    return makespan * (1.0 + penalty * excess) + TRANSFERS * transfers


@kernel
def _keep(state, makespan, excess, transfers, start, key):  # type: ignore[no-untyped-def]
    """The state has this makespan and so on; it may be the best."""
    device, offset, order, best, score = state
    order[0][:] = start
    order[1][:] = key
    score[0], score[1], score[4] = makespan, excess, transfers
    if excess < score[3] or (excess == score[3] and makespan < score[2]):
        score[2], score[3] = makespan, excess
        best[0][:] = device
        best[1][:] = offset


@kernel
def _visit(problem, state):  # type: ignore[no-untyped-def]
    makespan, excess, transfers, start, key = _evaluate(problem, state[0], state[1], np.inf)
    _keep(state, makespan, excess, transfers, start, key)


@kernel
def _group(moves, random, chosen):  # type: ignore[no-untyped-def]
    """Any group of any family."""
    cumulative, family_offsets = moves[4]
    group_offsets, members = moves[5]
    family = min(_draw(random, cumulative), len(cumulative) - 1)
    first = family_offsets[family]
    group = first + _below(random, family_offsets[family + 1] - first)
    size = group_offsets[group + 1] - group_offsets[group]
    chosen[:size] = members[group_offsets[group] : group_offsets[group + 1]]
    return size


@kernel
def _cluster(moves, device, random, chosen, seen):  # type: ignore[no-untyped-def]
    """A unit and some that edges join it to on the same device."""
    (offsets, ops), units, (near_offsets, near) = moves[0], moves[2], moves[3][:2]
    chosen[0] = units[_below(random, len(units))]
    seen[chosen[0]] = True
    here, size = device[ops[offsets[chosen[0]]]], 1
    wanted = 1 + np.int64(-CLUSTER_SIZE * np.log(1.0 - _uniform(random)))
    for _ in range(4 * wanted):
        if size == wanted:
            break
        unit = chosen[_below(random, size)]
        degree = near_offsets[unit + 1] - near_offsets[unit]
        if degree == 0:
            continue
        unit = near[near_offsets[unit] + _below(random, degree)]
        if not seen[unit] and device[ops[offsets[unit]]] == here:
            seen[unit] = True
            chosen[size] = unit
            size += 1
    for row in range(size):
        seen[chosen[row]] = False
    return size


@kernel
def _cut_end(moves, device, random, chosen):  # type: ignore[no-untyped-def]
    """A unit that an edge joins to another device; none if there are few."""
    (offsets, ops), units, (near_offsets, near) = moves[0], moves[2], moves[3][:2]
    for _ in range(50):
        unit = units[_below(random, len(units))]
        degree = near_offsets[unit + 1] - near_offsets[unit]
        if degree == 0:
            continue
        other = near[near_offsets[unit] + _below(random, degree)]
        if device[ops[offsets[unit]]] != device[ops[offsets[other]]]:
            chosen[0] = unit
            return 1
    return 0


@kernel
def _near(start, device, within, random, op):  # type: ignore[no-untyped-def]
    """An op of the same device that starts within a time of another; -1 if there are few."""
    for _ in range(50):
        other = _below(random, len(device))
        if other != op and device[other] == device[op] and abs(start[other] - start[op]) < within:
            return other
    return -1


@kernel
def _other_device(moves, device, random, unit):  # type: ignore[no-untyped-def]
    """Another device that a unit may go to."""
    (offsets, ops), allowed = moves[0], moves[1]
    here, target, count = device[ops[offsets[unit]]], -1, 0
    for there in range(allowed.shape[1]):
        if there != here and allowed[unit, there]:
            count += 1
            if _below(random, count) == 0:
                target = there
    return target


@kernel
def _move(moves, device, chosen, size, target, moved, was, count):  # type: ignore[no-untyped-def]
    """Move units as far as they may go there, and note where they were."""
    (offsets, ops), allowed = moves[0], moves[1]
    for row in range(size):
        unit = chosen[row]
        here = device[ops[offsets[unit]]]
        if here == target or not allowed[unit, target]:
            continue
        moved[count], was[count] = unit, here
        count += 1
        for entry in range(offsets[unit], offsets[unit + 1]):
            device[ops[entry]] = target
    return count


@kernel
def _pull_us(moves, device, unit, there):  # type: ignore[no-untyped-def]
    """What a unit shares with its neighbours there, less what it shares with those where it is.

    The time of the transfers of these tensors, were they sent.
    """
    (offsets, ops), (near_offsets, near, tensors, num_bytes) = moves[0], moves[3]
    latency, us_per_byte = moves[6]
    here, pull = device[ops[offsets[unit]]], 0.0
    for row in range(near_offsets[unit], near_offsets[unit + 1]):
        where = device[ops[offsets[near[row]]]]
        us = tensors[row] * latency[here, there] + num_bytes[row] * us_per_byte[here, there]
        if where == there:
            pull += us
        elif where == here:
            pull -= us
    return pull


@kernel
def _follow(moves, device, here, there, moved, was, count):  # type: ignore[no-untyped-def]
    """Neighbours of what has moved follow if they are pulled there, and so do theirs."""
    (offsets, ops), allowed, (near_offsets, near) = moves[0], moves[1], moves[3][:2]
    most, row = count + MOST_FOLLOWERS, 0
    while row < count and count <= most:
        for place in range(near_offsets[moved[row]], near_offsets[moved[row] + 1]):
            unit = near[place]
            if device[ops[offsets[unit]]] != here or not allowed[unit, there]:
                continue
            if _pull_us(moves, device, unit, there) > 0.0:
                moved[count], was[count] = unit, here
                count += 1
                for entry in range(offsets[unit], offsets[unit + 1]):
                    device[ops[entry]] = there
        row += 1
    return count


@kernel
def _change_devices(moves, device, random, kind, scratch):  # type: ignore[no-untyped-def]
    """Make one move; how many units it moved, which `scratch` tells."""
    offsets, ops = moves[0]
    chosen, seen, moved, was = scratch
    if kind == 1:
        size = _cluster(moves, device, random, chosen, seen)
    elif kind == 2:
        size = _cut_end(moves, device, random, chosen)
    else:
        size = _group(moves, random, chosen)
    if size == 0:
        return 0
    lead = chosen[_below(random, size)]
    here, there = device[ops[offsets[lead]]], _other_device(moves, device, random, lead)
    count = _move(moves, device, chosen, size, there, moved, was, 0)
    if kind == 3:
        size = _group(moves, random, chosen)
        count = _move(moves, device, chosen, size, here, moved, was, count)
    elif _uniform(random) < FOLLOWED:
        count = _follow(moves, device, here, there, moved, was, count)
    return count


@kernel
def _change_order(device, offset, order, makespan, random):  # type: ignore[no-untyped-def]
    """Let an op overtake another, or be overtaken; the op, or -1."""
    start, key = order
    op = _below(random, len(device))
    other = _near(start, device, makespan * NEAR ** _uniform(random), random, op)
    if other < 0 or key[op] == -np.inf or key[other] == -np.inf:
        return -1
    nudge = 1e-9 * makespan
    offset[op] += key[op] - key[other] + (nudge if start[other] <= start[op] else -nudge)
    return op


@kernel
def _anneal(problem, moves, state, random, steps, chances, temperature, penalty):  # type: ignore[no-untyped-def]
    device, offset, order, _, score = state
    offsets, ops = moves[0]
    num_groups = len(offsets) - 1
    moved, was = np.empty(2 * num_groups, np.int64), np.empty(2 * num_groups, np.int64)
    scratch = np.empty(num_groups, np.int64), np.zeros(num_groups, np.bool_), moved, was
    before = np.empty_like(offset)
    for _ in range(steps):
        kind, num_moved, op = _draw(random, chances), 0, -1
        if kind < len(chances):
            num_moved = _change_devices(moves, device, random, kind, scratch)
        else:
            before[:] = offset
            op = _change_order(device, offset, order, score[0], random)
        if num_moved == 0 and op < 0:
            continue
        cost = _cost(score[0], score[1], score[4], penalty)
        limit = cost - temperature * np.log(1.0 - _uniform(random))
        makespan, excess, transfers, start, key = _evaluate(problem, device, offset, limit)
        if _cost(makespan, excess, transfers, penalty) <= limit:
            _keep(state, makespan, excess, transfers, start, key)
            continue
        for row in range(num_moved - 1, -1, -1):
            for entry in range(offsets[moved[row]], offsets[moved[row] + 1]):
                device[ops[entry]] = was[row]
        if op >= 0:
            offset[op] = before[op]
