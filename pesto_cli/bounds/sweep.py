"""The kernels of `windows`: a sweep over all windows that bounds every head (or tail)."""

from typing import NamedTuple

import numpy as np

from pesto_cli.bounds.canonical import RESOLUTION
from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.kernels import kernel, step

# A window that ends at v has only ops among the last 200 before v, in the order of latest starts.
REACH = 200
# Windows that end at v begin at the last 8 ops with several successors on its longest path.
NUM_FORKS = 8
# Up to 40 rows, insertion sort is faster than argsort.
FEW = 40


class OpTimes(NamedTuple):
    """Times and shares of ops, `[num_ops]` each.

    time_us: time on the fastest device.
    work_us: w_u; see `windows`.
    share: the largest share y_d of a device that may run the op.
    """

    time_us: FloatArray
    work_us: FloatArray
    share: FloatArray


class EdgeRows(NamedTuple):
    """Edges in rows by head; on the reversed graph, in rows by tail.

    offsets: `[num_ops + 1]`.
    ops: `[num_edges]`, the other op of each edge.
    always_us, apart_us: `[num_edges]`, delays; see `edge_delays_us`.
    """

    offsets: IntArray
    ops: IntArray
    always_us: FloatArray
    apart_us: FloatArray


class Distances(NamedTuple):
    """Distances of ops from the begin x of a window, or to its end v, in us, `[num_ops]` each.

    near: of an op on the same device as x (or v); -1 for ops outside the window.
    far: of an op on another device.
    """

    near: FloatArray
    far: FloatArray


@kernel
def sweep(
    order: IntArray, before: EdgeRows, num_after: IntArray, pivot: BoolArray, times: OpTimes
) -> FloatArray:
    """Return the heads of all ops in us, `[num_ops]`; on the reversed graph, their tails.

    order: the ops in topological order. num_after: number of successors of each op.
    pivot: whether a window of all ops before (or after) the op is tried.
    """
    num_ops = len(order)
    head = np.zeros(num_ops)
    last = np.full(num_ops, -1, np.int64)  # predecessor on the longest path
    place = np.empty(num_ops, np.int64)
    from_x = Distances(np.full(num_ops, -1.0), np.empty(num_ops))
    to_v = Distances(np.full(num_ops, -1.0), np.empty(num_ops))
    for end in range(num_ops):
        v = order[end]
        place[v] = end
        _follow_predecessors(v, before, times.time_us, place, head, last)
        if before.offsets[v + 1] - before.offsets[v] < 2:
            continue  # with a single predecessor, no window is better than the path
        first = 0 if pivot[v] else max(0, end - REACH)
        inside = _ancestors(order[first : end + 1], place, before, times.time_us, to_v)
        if pivot[v]:
            window = _window(inside, times.work_us, times.share[v], Distances(head, head), to_v)
            head[v] = max(head[v], window)
        _follow_forks(v, inside, before, num_after, times, head, last, from_x, to_v)
        for u in inside:
            to_v.near[u] = -1.0
    return head


@step
def _follow_predecessors(
    v: int,
    before: EdgeRows,
    time_us: FloatArray,
    place: IntArray,
    head: FloatArray,
    last: IntArray,
) -> None:
    """Bound the head of v by each predecessor alone; set `last` to that on the longest path."""
    for row in range(before.offsets[v], before.offsets[v + 1]):
        u = before.ops[row]
        ready = head[u] + time_us[u] + before.always_us[row]
        # Among predecessors that are equal up to rounding, the latest in `order`.
        slack = RESOLUTION * ready
        if (
            last[v] < 0
            or ready > head[v] + slack
            or (ready >= head[v] - slack and place[u] > place[last[v]])
        ):
            last[v] = u
        head[v] = max(head[v], ready)


@kernel
def _follow_forks(
    v: int,
    inside: IntArray,
    before: EdgeRows,
    num_after: IntArray,
    times: OpTimes,
    head: FloatArray,
    last: IntArray,
    from_x: Distances,
    to_v: Distances,
) -> None:
    """Bound the head of v by windows that begin at forks on its longest path."""
    x, num_forks, num_later = last[v], 0, 0
    while x >= 0 and to_v.near[x] >= 0 and num_forks < NUM_FORKS:
        if num_after[x] > 1:
            num_forks += 1
            while inside[num_later] != x:
                num_later += 1
            ops = _descendants(x, inside[:num_later], before, times.time_us, from_x)
            y = max(times.share[x], times.share[v])
            window = _window(ops, times.work_us, y, from_x, to_v)
            head[v] = max(head[v], head[x] + times.time_us[x] + window)
            for u in ops:
                from_x.near[u] = -1.0
        x = last[x]


@kernel
def _ancestors(
    order: IntArray, place: IntArray, before: EdgeRows, time_us: FloatArray, to_v: Distances
) -> IntArray:
    """Return the ancestors of the last op of `order` within `order`, latest first; set `to_v`."""
    offsets, ops, near, far = before.offsets, before.ops, to_v.near, to_v.far
    found, size = np.empty(len(order), np.int64), 0
    v, first = order[-1], place[order[0]]
    for u in order[::-1]:
        path, far_path = 0.0, np.inf  # v is on its own device
        if u != v:
            if near[u] < 0:
                continue
            found[size] = u
            size += 1
            path, far_path = near[u] + time_us[u], far[u] + time_us[u]
        for row in range(offsets[u], offsets[u + 1]):
            if place[ops[row]] >= first:
                _extend(to_v, ops[row], path, far_path, before, row)
    return found[:size]


@kernel
def _descendants(
    x: int, later: IntArray, before: EdgeRows, time_us: FloatArray, from_x: Distances
) -> IntArray:
    """Return the descendants of x in `later`, earliest first; set `from_x` for them.

    `later` has the ops of the window after x, the latest first.
    """
    offsets, ops, near, far = before.offsets, before.ops, from_x.near, from_x.far
    found, size = np.empty(len(later), np.int64), 0
    for u in later[::-1]:
        for row in range(offsets[u], offsets[u + 1]):
            w = ops[row]
            if w == x:  # on its own device
                _extend(from_x, u, 0.0, np.inf, before, row)
            elif near[w] >= 0:
                _extend(from_x, u, near[w] + time_us[w], far[w] + time_us[w], before, row)
        if near[u] >= 0:
            found[size] = u
            size += 1
    return found[:size]


@step
def _extend(
    distances: Distances, op: int, path: float, far_path: float, before: EdgeRows, row: int
) -> None:
    """Extend the paths of a neighbour to this op.

    A far path crosses devices either on this edge or on an earlier one.
    """
    near, far, always_us = distances.near, distances.far, before.always_us[row]
    if near[op] < 0:
        far[op] = 0.0
    near[op] = max(near[op], path + always_us)
    far[op] = max(far[op], min(path + before.apart_us[row], far_path + always_us))


@kernel
def _window(
    ops: IntArray, work_us: FloatArray, y: float, heads: Distances, tails: Distances
) -> float:
    """Return the best bound on D that some of these ops give; 0 without ops."""
    total = 0.0
    for op in ops:
        total += work_us[op]
    # A distance above the time that one device needs for all ops does not improve the bound.
    limit = total / y if y > 0 else np.inf
    ops = _cut(_cut(ops, work_us, y, heads, limit), work_us, y, tails, limit)
    if len(ops) == 0:
        return 0.0
    total = 0.0
    for op in ops:
        total += work_us[op]
    near_start, far_start = _nearest(ops, heads, limit)
    near_end, far_end = _nearest(ops, tails, limit)
    near, far = near_start + near_end, far_start + far_end
    spread: float = near + total + (1 - y) * (far - near)
    return min(spread, near + total / y) if y > 0 else spread


@step
def _nearest(ops: IntArray, distances: Distances, limit: float) -> tuple[float, float]:
    """Return the smallest near and the smallest far distance of some ops."""
    near, far = np.inf, np.inf
    for op in ops:
        near = min(near, distances.near[op])
        far = min(far, _at_most(distances, op, limit))
    return near, far


@kernel
def _cut(
    ops: IntArray, work_us: FloatArray, y: float, distances: Distances, limit: float
) -> IntArray:
    """Return the ops with work whose far head (or tail) is above the best threshold."""
    near = distances.near
    working, size = np.empty(len(ops), np.int64), 0
    distance, nearness = np.empty(len(ops)), np.empty(len(ops))
    longest = 0.0
    for op in ops:
        if work_us[op] > 0:
            working[size], nearness[size] = op, near[op]
            distance[size] = _at_most(distances, op, limit)
            if distance[size] < np.inf:
                longest = max(longest, distance[size])
            size += 1
    # By far distance; among ops that are equal up to rounding, by near distance.
    unit = RESOLUTION * longest if longest > 0 else 1.0
    order = _by_two_keys(np.round(distance[:size] / unit), nearness[:size])
    best, first = -np.inf, size
    total, nearest = 0.0, np.inf
    for rank in range(size - 1, -1, -1):
        op = working[order[rank]]
        total, nearest = total + work_us[op], min(nearest, near[op])
        value = total + y * nearest + (1 - y) * distance[order[rank]]
        if value > best * (1 + RESOLUTION):
            best, first = value, rank
    best_ops: IntArray = working[order[first:]]
    return best_ops


@step
def _at_most(distances: Distances, op: int, limit: float) -> float:
    """Return the far distance of an op, at most the limit and at least its near distance."""
    near: float = distances.near[op]
    far: float = distances.far[op]
    return min(far, max(near, limit))


@kernel
def _by_two_keys(first: FloatArray, second: FloatArray) -> IntArray:
    """Return the order of rows by first key, then second key, then index."""
    if len(first) > FEW:
        by_second = np.argsort(second, kind="mergesort")
        both: IntArray = by_second[np.argsort(first[by_second], kind="mergesort")]
        return both
    order = np.empty(len(first), np.int64)
    for row in range(len(first)):
        place = row
        while place > 0:
            before = order[place - 1]
            if first[before] < first[row] or (
                first[before] == first[row] and second[before] <= second[row]
            ):
                break
            order[place] = before
            place -= 1
        order[place] = row
    return order
