"""Insertion-based list scheduling: what HEFT and DPOS share (Topcuoglu et al. 2002, Section 5).

Ops are taken in order of their upward rank. One whose device is not decided yet goes where it ends
earliest, one whose device is decided goes there; in either case into the earliest idle slot that is
long enough, after all that it waits for. Transfers take their time and never wait for each other,
as in both papers' models. The first op of a colocation group decides for all of it.

A variable's handle and its reads wait for nothing outside of their colocation group, so where they
end earliest says nothing of where the variable is needed. They decide nothing: they are placed with
the first op that takes something of them, on the device where that one ends earliest. In the papers
an op moves alone, and there is no such rule.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.kernels import kernel
from pesto_cli.strategies.devices import fastest_device

# Of costs on one device, or pair of these, after the other: one figure for each op, or edge.
Reduction = Callable[[Iterable[FloatArray]], FloatArray]


def mean(costs_us: Iterable[FloatArray]) -> FloatArray:
    """HEFT's figure for a cost that differs."""
    total, number = np.zeros(()), 0
    for cost_us in costs_us:
        total, number = total + cost_us, number + 1
    return total / number


def largest(costs_us: Iterable[FloatArray]) -> FloatArray:
    """DPOS's figure for a cost that differs."""
    return reduce(np.maximum, costs_us)


@dataclass(frozen=True, eq=False)
class Edges:
    """What ops wait for, an entry for each tensor and consumer and for each control edge.

    tail, head: `[num_edges]`, ops. num_bytes: of the tensor. is_signal: it crosses as a signal.
    """

    tail: IntArray
    head: IntArray
    num_bytes: IntArray
    is_signal: BoolArray

    @classmethod
    def of(cls, problem: Problem) -> "Edges":
        """Data first, then control edges."""
        graph = problem.graph
        before, after = graph.control_edges.T
        return cls(
            tail=np.concatenate((graph.tensor_producer[graph.consumer_tensor], before)),
            head=np.concatenate((graph.consumers, after)),
            num_bytes=np.concatenate(
                (graph.tensor_bytes[graph.consumer_tensor], np.zeros_like(before))
            ),
            is_signal=np.concatenate(
                (graph.consumer_on_host, np.ones(len(before), dtype=np.bool_))
            ),
        )


@dataclass(frozen=True, eq=False)
class Own:
    """A schedule in the model of the papers, without congestion: `[num_ops]` each."""

    device: IntArray
    start_us: FloatArray
    end_us: FloatArray

    @property
    def makespan_us(self) -> float:
        """End of the last op."""
        return float(self.end_us.max(initial=0.0))


def upward_rank(problem: Problem, edges: Edges, reduction: Reduction) -> FloatArray:
    """`[num_ops]`: rank_i = w_i + max over successors j of (c_ij + rank_j).

    w_i is the mean (or largest) time over the devices that may run i, c_ij the mean (or largest)
    time of the transfer over the pairs of different devices that may run i and j; 0 if there is
    none, and within a colocation group.
    """
    patterns, pattern = np.unique(problem.allowed, axis=0, return_inverse=True)
    pattern = pattern.reshape(-1)
    op_us = np.zeros(problem.num_ops)
    for number, devices in enumerate(patterns):
        ops = np.flatnonzero(pattern == number)
        op_us[ops] = reduction(problem.duration_us[ops][:, devices].T)
    cost_us = np.zeros(len(edges.tail))
    together = (
        problem.graph.colocation_group[edges.tail] == (problem.graph.colocation_group[edges.head])
    )
    for first, sources in enumerate(patterns):
        for second, destinations in enumerate(patterns):
            pairs = [
                (src, dst)
                for src in np.flatnonzero(sources).tolist()
                for dst in np.flatnonzero(destinations).tolist()
                if src != dst
            ]
            rows = np.flatnonzero(
                (pattern[edges.tail] == first) & (pattern[edges.head] == second) & ~together
            )
            if pairs:
                cost_us[rows] = reduction(_crossing_us(problem, edges, rows, pairs))
    order = problem.graph.topological_order
    by_tail = np.argsort(edges.tail, kind="stable")
    rank: FloatArray = longest_from(
        order,
        op_us,
        _offsets(edges.tail, problem.num_ops),
        edges.head[by_tail],
        cost_us[by_tail],
    )
    return rank


def insertion_schedule(
    problem: Problem, edges: Edges, rank: FloatArray, decided: IntArray, need_bytes: FloatArray
) -> Own:
    """Place every op in order of rank, ties in topological order.

    Args:
        problem: what to place.
        edges: of the problem.
        rank: `[num_ops]`, upward ranks.
        decided: `[num_groups]`, the device of a colocation group, or -1 where it is to be chosen.
        need_bytes: `[num_groups]`, memory that a group takes for good. A device without room for it
            is out of the question as long as there is another.
    """
    machine = problem.machine
    topological = problem.graph.topological_order
    order = topological[np.argsort(-rank[topological], kind="stable")]
    only_one = problem.group_allowed.sum(axis=1) == 1
    decided = np.where((decided < 0) & only_one, problem.group_allowed.argmax(axis=1), decided)
    by_head = np.argsort(edges.head, kind="stable")
    waits_for = (
        _offsets(edges.head, problem.num_ops),
        edges.tail[by_head],
        edges.num_bytes[by_head],
        edges.is_signal[by_head],
    )
    device, start_us, end_us = insert(
        order,
        problem.duration_us,
        waits_for,
        (machine.latency_us, machine.us_per_byte, machine.min_us, float(machine.signal_us)),
        problem.graph.colocation_group,
        problem.group_allowed,
        decided,
        fastest_device(problem),
        need_bytes,
        problem.capacity_bytes,
    )
    return Own(device, start_us, end_us)


def _crossing_us(
    problem: Problem, edges: Edges, rows: IntArray, pairs: list[tuple[int, int]]
) -> Iterator[FloatArray]:
    """`[num_rows]` each: how long edges take between each of these pairs of devices."""
    machine, is_signal = problem.machine, edges.is_signal[rows]
    for sent_us in machine.transfers_us(edges.num_bytes[rows], pairs):
        yield np.where(is_signal, machine.signal_us, sent_us)


def _offsets(ends: IntArray, num_ops: int) -> IntArray:
    """`[num_ops + 1]`: rows of edges that are sorted by one of their ends."""
    return np.append(0, np.cumsum(np.bincount(ends, minlength=num_ops)))


@kernel
def longest_from(order, op_us, offsets, head, cost_us):  # type: ignore[no-untyped-def]
    """`[num_ops]`: the longest path from an op's start to the end of the graph."""
    rank = np.zeros(len(order))
    for op in order[::-1]:
        behind = 0.0
        for edge in range(offsets[op], offsets[op + 1]):
            behind = max(behind, cost_us[edge] + rank[head[edge]])
        rank[op] = op_us[op] + behind
    return rank


@kernel
def _slot(starts, ends, count, ready, takes):  # type: ignore[no-untyped-def]
    """The earliest idle time of a length on a device at or after an instant, and its place."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] > ready:
            high = middle
        else:
            low = middle + 1
    begin, place = ready, low
    while place < count and starts[place] < begin + takes:
        begin = max(begin, ends[place])
        place += 1
    return begin, place


@kernel
def _there(op, here, waits_for, machine, device, end):  # type: ignore[no-untyped-def]
    """When all that an op waits for is on a device; what it takes from must have been placed."""
    offsets, tail, num_bytes, is_signal = waits_for
    latency, slope, floor, signal_us = machine
    ready = 0.0
    for edge in range(offsets[op], offsets[op + 1]):
        before = tail[edge]
        src, delay = device[before], 0.0
        if src != here and is_signal[edge]:
            delay = signal_us
        elif src != here:
            delay = max(floor[src, here], latency[src, here] + slope[src, here] * num_bytes[edge])
        ready = max(ready, end[before] + delay)
    return ready


@kernel
def _put(starts, ends, count, ready, takes):  # type: ignore[no-untyped-def]
    """Take the earliest idle time of a length on a device; gives its begin."""
    begin, place = _slot(starts, ends, count, ready, takes)
    for later in range(count, place, -1):
        starts[later], ends[later] = starts[later - 1], ends[later - 1]
    starts[place], ends[place] = begin, begin + takes
    return begin


@kernel
def _undecided(order, waits_for, group, num_groups):  # type: ignore[no-untyped-def]
    """`[num_ops]`: in a group of several, and waits for nothing outside of it."""
    offsets, tail = waits_for[:2]
    size = np.zeros(num_groups, np.int64)
    for op in order:
        size[group[op]] += 1
    waits = np.zeros(len(order), np.bool_)
    for op in order:
        waits[op] = size[group[op]] > 1
        for edge in range(offsets[op], offsets[op + 1]):
            waits[op] &= waits[tail[edge]] and group[tail[edge]] == group[op]
    return waits


@kernel
def _pull(op, waits_for, device, order, position, pulled, pulled_by):  # type: ignore[no-untyped-def]
    """Positions in the order of an op and of all before it that are not placed, ascending."""
    offsets, tail = waits_for[:2]
    pulled[0], num_pulled, seen = position[op], 1, 0
    while seen < num_pulled:
        after = order[pulled[seen]]
        seen += 1
        for edge in range(offsets[after], offsets[after + 1]):
            before = tail[edge]
            if device[before] < 0 and pulled_by[before] != op:
                pulled_by[before] = op
                pulled[num_pulled] = position[before]
                num_pulled += 1
    pulled[:num_pulled].sort()
    return num_pulled


@kernel
def _home(one, here, chosen, allowed, fastest):  # type: ignore[no-untyped-def]
    """Where a group goes if the op that pulls it goes to `here`."""
    if chosen[one] >= 0:
        return chosen[one]
    return here if allowed[one, here] else fastest[one]


@kernel
def _earliest(  # type: ignore[no-untyped-def]
    now, duration, waits_for, machine, group, allowed, fastest, need,
    chosen, room, device, end, starts, ends, count,
):  # fmt: skip
    """Where the last of some ops ends earliest if all go there, and where most memory is free.

    The first is -1 if no device has room for all. As if they did not get into each other's way.
    """
    op = now[-1]
    best, earliest, roomiest = -1, np.inf, -1
    for here in range(len(room)):
        if not allowed[group[op], here]:
            continue
        if _home(group[op], here, chosen, allowed, fastest) != here:
            continue
        if roomiest < 0 or room[here] > room[roomiest]:
            roomiest = here
        needed, last = 0.0, -1
        for before in now:
            one = group[before]
            if chosen[one] < 0 and one != last and allowed[one, here]:
                needed, last = needed + need[one], one
        if needed > 0.0 and needed > room[here]:
            continue
        for before in now:
            there = device[before] = _home(group[before], here, chosen, allowed, fastest)
            ready = _there(before, there, waits_for, machine, device, end)
            takes = duration[before, there]
            begin, _ = _slot(starts[there], ends[there], count[there], ready, takes)
            end[before] = begin + takes
        if end[op] < earliest:
            best, earliest = here, end[op]
    return best, roomiest


@kernel
def insert(  # type: ignore[no-untyped-def]
    order, duration, waits_for, machine, group, allowed, decided, fastest, need, capacity
):
    """Device, start and end of every op; see the head of the file.

    `order` is topological. Where no device has room for a group, the one with most has to do.
    """
    num_ops, num_devices = duration.shape
    chosen, room = decided.copy(), capacity.copy()
    for one in range(len(chosen)):
        if chosen[one] >= 0:
            room[chosen[one]] -= need[one]
    position = np.empty(num_ops, np.int64)
    position[order] = np.arange(num_ops)
    undecided = _undecided(order, waits_for, group, len(chosen))
    device = np.full(num_ops, -1, np.int64)
    start, end = np.zeros(num_ops), np.zeros(num_ops)
    # Of every device, in order of time.
    starts, ends = np.empty((num_devices, num_ops)), np.empty((num_devices, num_ops))
    count = np.zeros(num_devices, np.int64)
    pulled, pulled_by = np.empty(num_ops, np.int64), np.full(num_ops, -1, np.int64)

    # The second time round, what no other op has pulled.
    for turn in range(2 * num_ops):
        op = order[turn % num_ops]
        if turn < num_ops and undecided[op] and chosen[group[op]] < 0:
            continue
        while device[op] < 0:
            num_pulled = _pull(op, waits_for, device, order, position, pulled, pulled_by)
            now = order[pulled[:num_pulled]]
            best, roomiest = _earliest(
                now, duration, waits_for, machine, group, allowed, fastest, need,
                chosen, room, device, end, starts, ends, count,
            )  # fmt: skip
            if best < 0 and num_pulled > 1:
                # No device has room for all: the first goes by itself, then the rest again.
                device[now] = -1
                pulled_by[now] = -1
                now = now[:1]
                best, roomiest = _earliest(
                    now, duration, waits_for, machine, group, allowed, fastest, need,
                    chosen, room, device, end, starts, ends, count,
                )  # fmt: skip
            if best < 0:
                best = roomiest
            for before in now:
                one = group[before]
                here = device[before] = _home(one, best, chosen, allowed, fastest)
                if chosen[one] < 0:
                    chosen[one] = here
                    room[here] -= need[one]
                ready = _there(before, here, waits_for, machine, device, end)
                takes = duration[before, here]
                start[before] = _put(starts[here], ends[here], count[here], ready, takes)
                end[before] = start[before] + takes
                count[here] += 1
    return device, start, end
