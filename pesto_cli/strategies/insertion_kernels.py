"""The kernels of `insertion_scheduling`, which describes the algorithm."""

from typing import NamedTuple

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.evaluation.simulator.columns import KernelMachine
from pesto_cli.evaluation.simulator.paths import transfer_us
from pesto_cli.kernels import kernel, step


class WaitsFor(NamedTuple):
    """The incoming edges of ops, in compressed rows by op.

    offsets: `[num_ops + 1]`.
    tail, num_bytes, is_signal: `[num_edges]`, as in `insertion_scheduling.Edges`.
    """

    offsets: IntArray
    tail: IntArray
    num_bytes: IntArray
    is_signal: BoolArray


class Ops(NamedTuple):
    """The ops to place.

    order: a topological order, `[num_ops]`.
    duration_us: `[num_ops, num_devices]`.
    waits_for: the incoming edges.
    group: the colocation group of each op, `[num_ops]`.
    """

    order: IntArray
    duration_us: FloatArray
    waits_for: WaitsFor
    group: IntArray


class Groups(NamedTuple):
    """The colocation groups and their devices.

    allowed: whether a group may run on a device, `[num_groups, num_devices]`.
    fastest: the fastest device of each group, `[num_groups]`.
    memory_bytes: memory that each group uses throughout the step, `[num_groups]`.
    chosen: the device of each group, or -1 while it is undecided, `[num_groups]`.
    """

    allowed: BoolArray
    fastest: IntArray
    memory_bytes: FloatArray
    chosen: IntArray


class Timeline(NamedTuple):
    """The busy intervals of each device, in order of time.

    start_us, end_us: `[num_devices, num_ops]`, of which the first `num_ops` entries are used.
    num_ops: number of placed ops on each device, `[num_devices]`.
    """

    start_us: FloatArray
    end_us: FloatArray
    num_ops: IntArray


class PlacedOps(NamedTuple):
    """The ops that are placed so far.

    device: the device of each op, or -1 while it is not placed, `[num_ops]`.
    start_us, end_us: `[num_ops]`.
    room_bytes: free memory of each device, `[num_devices]`.
    timeline: the busy intervals.
    """

    device: IntArray
    start_us: FloatArray
    end_us: FloatArray
    room_bytes: FloatArray
    timeline: Timeline


class Pulled(NamedTuple):
    """Ops that are placed together: one op, and all unplaced ops before it.

    position: position of each op in the order, `[num_ops]`.
    rows: positions of the pulled ops, in the first entries of `[num_ops]`.
    by: the op that pulled each op last, or -1, `[num_ops]`.
    """

    position: IntArray
    rows: IntArray
    by: IntArray


@kernel
def longest_from(
    order: IntArray, op_us: FloatArray, offsets: IntArray, head: IntArray, cost_us: FloatArray
) -> FloatArray:
    """Return the longest path in us from each op's start to the end of the graph, `[num_ops]`."""
    rank = np.zeros(len(order))
    for op in order[::-1]:
        behind = 0.0
        for edge in range(offsets[op], offsets[op + 1]):
            behind = max(behind, cost_us[edge] + rank[head[edge]])
        rank[op] = op_us[op] + behind
    return rank


@kernel
def insert(
    ops: Ops, groups: Groups, links: KernelMachine, capacity: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the device, start and end of each op; see `insertion_scheduling`.

    If no device has enough memory for a group, the device with the most free memory is used.
    """
    num_ops, group = len(ops.order), ops.group
    groups = Groups(groups.allowed, groups.fastest, groups.memory_bytes, groups.chosen.copy())
    placed = _nothing_placed(ops, groups, capacity)
    position = np.empty(num_ops, np.int64)
    position[ops.order] = np.arange(num_ops)
    pulled = Pulled(position, np.empty(num_ops, np.int64), np.full(num_ops, -1, np.int64))
    undecided = _undecided(ops, len(groups.chosen))
    # In the second pass, place the ops that no other op has pulled.
    for turn in range(2 * num_ops):
        op = ops.order[turn % num_ops]
        if turn < num_ops and undecided[op] and groups.chosen[group[op]] < 0:
            continue
        while placed.device[op] < 0:
            _place(op, ops, groups, links, placed, pulled)
    return placed.device, placed.start_us, placed.end_us


@kernel
def _nothing_placed(ops: Ops, groups: Groups, capacity: FloatArray) -> PlacedOps:
    num_ops, num_devices = ops.duration_us.shape
    chosen, need, room = groups.chosen, groups.memory_bytes, capacity.copy()
    for one in range(len(chosen)):
        if chosen[one] >= 0:
            room[chosen[one]] -= need[one]
    timeline = Timeline(
        np.empty((num_devices, num_ops)),
        np.empty((num_devices, num_ops)),
        np.zeros(num_devices, np.int64),
    )
    device = np.full(num_ops, -1, np.int64)
    return PlacedOps(device, np.zeros(num_ops), np.zeros(num_ops), room, timeline)


@kernel
def _undecided(ops: Ops, num_groups: int) -> BoolArray:
    """Return whether an op is in a group of several ops and has no predecessors outside of it.

    The result is `[num_ops]`.
    """
    offsets, tail, group = ops.waits_for.offsets, ops.waits_for.tail, ops.group
    size = np.zeros(num_groups, np.int64)
    for op in ops.order:
        size[group[op]] += 1
    waits = np.zeros(len(ops.order), np.bool_)
    for op in ops.order:
        waits[op] = size[group[op]] > 1
        for edge in range(offsets[op], offsets[op + 1]):
            waits[op] &= waits[tail[edge]] and group[tail[edge]] == group[op]
    return waits


@kernel
def _place(
    op: int, ops: Ops, groups: Groups, links: KernelMachine, placed: PlacedOps, pulled: Pulled
) -> None:
    """Place an op and all that it pulls, or only the first of them if memory is too small."""
    num_pulled = _pull(op, ops, placed, pulled)
    pulled.rows[:num_pulled].sort()
    now = ops.order[pulled.rows[:num_pulled]]
    best, roomiest = _earliest(now, ops, groups, links, placed)
    if best < 0 and num_pulled > 1:
        # No device has memory for all of them: place only the first now.
        placed.device[now] = -1
        pulled.by[now] = -1
        now = now[:1]
        best, roomiest = _earliest(now, ops, groups, links, placed)
    if best < 0:
        best = roomiest
    for before in now:
        _put(before, best, ops, groups, links, placed)


@step
def _pull(op: int, ops: Ops, placed: PlacedOps, pulled: Pulled) -> int:
    """Write the positions of an op and all unplaced ops before it to `pulled`; return how many."""
    offsets, tail, rows = ops.waits_for.offsets, ops.waits_for.tail, pulled.rows
    rows[0], num_pulled, seen = pulled.position[op], 1, 0
    while seen < num_pulled:
        after = ops.order[rows[seen]]
        seen += 1
        for edge in range(offsets[after], offsets[after + 1]):
            before = tail[edge]
            if placed.device[before] < 0 and pulled.by[before] != op:
                pulled.by[before] = op
                rows[num_pulled] = pulled.position[before]
                num_pulled += 1
    return num_pulled


@step
def _earliest(
    now: IntArray, ops: Ops, groups: Groups, links: KernelMachine, placed: PlacedOps
) -> tuple[int, int]:
    """Return the device on which the last op ends earliest, and the device with most free memory.

    All ops of `now` are tried on one device, as if they did not delay each other. The first result
    is -1 if no device has enough memory for all of them.
    """
    one, room = ops.group[now[-1]], placed.room_bytes
    best, earliest_us, roomiest = -1, np.inf, -1
    for here in range(len(room)):
        if not groups.allowed[one, here] or _home(one, here, groups) != here:
            continue
        if roomiest < 0 or room[here] > room[roomiest]:
            roomiest = here
        needed = _needed_bytes(now, here, ops, groups)
        if needed > 0.0 and needed > room[here]:
            continue
        end_us = _try_on(now, here, ops, groups, links, placed)
        if end_us < earliest_us:
            best, earliest_us = here, end_us
    return best, roomiest


@step
def _needed_bytes(now: IntArray, here: int, ops: Ops, groups: Groups) -> float:
    """Return the memory that undecided groups of these ops need on a device, in bytes."""
    needed, last = 0.0, -1
    for op in now:
        one = ops.group[op]
        if groups.chosen[one] < 0 and one != last and groups.allowed[one, here]:
            needed, last = needed + groups.memory_bytes[one], one
    return needed


@step
def _try_on(
    now: IntArray, here: int, ops: Ops, groups: Groups, links: KernelMachine, placed: PlacedOps
) -> float:
    """Try to put all these ops on a device; return the end of the last, store devices and ends."""
    end_us = placed.end_us
    for op in now:
        there = _home(ops.group[op], here, groups)
        placed.device[op] = there
        ready_us, takes_us = _ready_us(op, there, ops, links, placed), ops.duration_us[op, there]
        begin_us, _ = _slot(placed.timeline, there, ready_us, takes_us)
        end_us[op] = begin_us + takes_us
    last_us: float = end_us[now[-1]]
    return last_us


@step
def _home(one: int, here: int, groups: Groups) -> int:
    """Return the group's device; if undecided, the one it gets when the pulling op is on `here`."""
    home: int = groups.chosen[one]
    if home < 0:
        home = here if groups.allowed[one, here] else groups.fastest[one]
    return home


@step
def _ready_us(op: int, here: int, ops: Ops, links: KernelMachine, placed: PlacedOps) -> float:
    """Return when all inputs of an op are on a device, in us; its predecessors must be placed."""
    waits_for, ready_us = ops.waits_for, 0.0
    for edge in range(waits_for.offsets[op], waits_for.offsets[op + 1]):
        before = waits_for.tail[edge]
        src, delay_us = placed.device[before], 0.0
        if src != here and waits_for.is_signal[edge]:
            delay_us = links.signal_us
        elif src != here:
            delay_us = transfer_us(links, src, here, waits_for.num_bytes[edge])
        ready_us = max(ready_us, placed.end_us[before] + delay_us)
    return ready_us


@step
def _slot(timeline: Timeline, here: int, ready_us: float, takes_us: float) -> tuple[float, int]:
    """Return begin and index of the first idle slot of a device that is long enough.

    The slot begins at `ready_us` or later, and lasts `takes_us`.
    """
    count = timeline.num_ops[here]
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if timeline.end_us[here, middle] > ready_us:
            high = middle
        else:
            low = middle + 1
    begin_us, place = ready_us, low
    while place < count and timeline.start_us[here, place] < begin_us + takes_us:
        begin_us = max(begin_us, timeline.end_us[here, place])
        place += 1
    return begin_us, place


@step
def _put(
    op: int, here: int, ops: Ops, groups: Groups, links: KernelMachine, placed: PlacedOps
) -> None:
    """Place an op and decide its group, in the earliest slot, if the pulling op runs on `here`."""
    one = ops.group[op]
    there = _home(one, here, groups)
    placed.device[op] = there
    if groups.chosen[one] < 0:
        groups.chosen[one] = there
        placed.room_bytes[there] -= groups.memory_bytes[one]
    ready_us, takes_us = _ready_us(op, there, ops, links, placed), ops.duration_us[op, there]
    timeline, count = placed.timeline, placed.timeline.num_ops[there]
    begin_us, place = _slot(timeline, there, ready_us, takes_us)
    for later in range(count, place, -1):
        timeline.start_us[there, later] = timeline.start_us[there, later - 1]
        timeline.end_us[there, later] = timeline.end_us[there, later - 1]
    timeline.start_us[there, place] = begin_us
    timeline.end_us[there, place] = begin_us + takes_us
    timeline.num_ops[there] += 1
    placed.start_us[op], placed.end_us[op] = begin_us, begin_us + takes_us
