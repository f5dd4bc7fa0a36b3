"""Heads and tails that know of transfers.

A window is the time D from the end of an op x to the start of an op v that comes after it. Of every
op u between them we know

    near head a_u    S_u - C_x >= a_u:  the longest path from x to u;
    far head a'_u    S_u - C_x >= a'_u, if u is on another device than x: on every path from x to u
                     some edge crosses devices, and the shortest transfer on it (or the signal)
                     adds to the path. That of an edge is over the pairs of devices that its ends
                     may run on; where the ends can share no device, it adds to every path;
    near tail q_u    S_v - C_u >= q_u, and the far tail q'_u if u is on another device than v.

Let J be a set of these ops, A = min_J a and Q = min_J q, A' and Q' likewise. x's device can run
none of J before A, the others none before A'; v's device none in the last Q of the window, the
others none in the last Q'. With shares y_d of the devices, w_u = min_d y_d time[u, d] (see `load`),
W = sum_J w, and y the largest share of a device that x or v may run on,

    W <= y (D - A - Q)+ + (1 - y) (D - A' - Q')+

and if x and v are on two devices, these hold no more, as f+ is convex in f. So

    D >= A + Q + min(W / y, W + (1 - y) (A' - A + Q' - Q)):

one device runs all of J, or the others help and wait for transfers at both ends of the window.
With S_v in place of D, and the heads of the ops in place of a and a', it holds without an x.

That an op starts late enough for its predecessors' data to come from elsewhere, or after all of
them on one device, is due to Papadimitriou and Yannakakis ("Towards an architecture-independent
analysis of parallel algorithms", 1990). They have as many devices as they like; here devices are
few, so what the others can do in the window counts as well.
"""

from itertools import permutations

import numpy as np

from pesto_cli.bounds.chains import heads, tails
from pesto_cli.bounds.load import device_shares, shared_work_us
from pesto_cli.data.canonical import RESOLUTION, canonical_order, canonical_place, rounded
from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.kernels import kernel

# A window to v holds ops of the last so many before v, in the order of latest starts.
REACH = 200
# Windows to v begin at the last so many ops of its longest path that have several successors.
NUM_FORKS = 8
# So many joins and forks, spread over the step, have a window of all that comes before or after.
NUM_PIVOTS = 256
# So many rows are sorted faster by insertion.
FEW = 40


def heads_and_tails(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Bound the time before each op's start and after its end.

    Returns:
        No op starts before its head, and the step goes on for its tail after its end; in us,
        `[num_ops]`, nowhere below `chains.heads` and `chains.tails`.
    """
    graph, time_us = problem.graph, problem.min_duration_us
    head_us, tail_us = heads(graph, time_us), tails(graph, time_us)
    shared = [(shared_work_us(problem, y), y) for y in device_shares(problem)]
    if not shared:
        return head_us, tail_us
    total_us = np.array([work_us.sum() for work_us, _ in shared])
    work_us, y = shared[int((total_us >= total_us.max() * (1 - RESOLUTION)).argmax())]
    largest_share = np.where(problem.allowed, y, 0.0).max(axis=1)
    ops = time_us, work_us, largest_share
    always_us, apart_us = edge_delays_us(problem)
    by_head = np.lexsort((graph.edges[:, 0], graph.edges[:, 1]))
    before, after = graph.predecessors, graph.successors
    before_rows = before.offsets, before.indices, always_us[by_head], apart_us[by_head]
    after_rows = after.offsets, after.indices, always_us, apart_us
    order, place = canonical_order(problem), canonical_place(problem)
    forward = _sorted(order, tail_us + time_us)
    backward = _sorted(order[::-1], head_us + time_us)
    through_us = head_us + time_us + tail_us
    joins = _pivots(before.degree > 1, head_us, through_us, place)
    forks = _pivots(after.degree > 1, head_us, through_us, place)
    return (
        _sweep(forward, before_rows, after.degree, joins, *ops),
        _sweep(backward, after_rows, before.degree, forks, *ops),
    )


def edge_delays_us(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """What passes at least between the end of an edge's tail and the start of its head.

    Returns:
        Two arrays in us by edge, `[num_edges]`: always, wherever the two are; and if they are on
        different devices, inf where they never are.
    """
    graph, allowed, signal_us = problem.graph, problem.allowed, problem.machine.signal_us
    producer, consumer = graph.tensor_producer[graph.consumer_tensor], graph.consumers
    sent_us = np.full(len(consumer), np.inf)
    pairs = list(permutations(range(problem.num_devices), 2))
    tables_us = problem.machine.transfers_us(graph.tensor_bytes[graph.consumer_tensor], pairs)
    may_send, may_take = allowed[producer].T.copy(), allowed[consumer].T.copy()
    for (src, dst), transfer_us in zip(pairs, tables_us, strict=True):
        possible = may_send[src] & may_take[dst]
        sent_us = np.where(possible, np.minimum(sent_us, transfer_us), sent_us)
    sent_us[graph.consumer_on_host] = signal_us
    # An edge may stand for several tensors and a control edge, and waits for all of them.
    before, after = graph.control_edges.T
    delay_us = np.concatenate((sent_us, np.full(len(before), signal_us)))
    pairs = np.concatenate((producer, before)) * graph.num_ops + np.concatenate((consumer, after))
    tail, head = graph.edges.T
    apart_us = np.zeros(len(graph.edges))
    np.maximum.at(apart_us, np.searchsorted(tail * graph.num_ops + head, pairs), delay_us)
    one_group = graph.colocation_group[tail] == graph.colocation_group[head]
    one_device = (allowed[tail] | allowed[head]).sum(axis=1) == 1
    apart_us[one_group | one_device] = np.inf
    can_meet = (allowed[tail] & allowed[head]).any(axis=1)
    return np.where(can_meet, 0.0, apart_us), apart_us


def _pivots(
    able: BoolArray, head_us: FloatArray, through_us: FloatArray, place: IntArray
) -> BoolArray:
    """`[num_ops]`: for every part of the step, the op on the longest path of those that are able.

    An op that is no join cannot do better than its only predecessor, and likewise with forks.
    """
    progress = np.divide(head_us, through_us, out=np.zeros_like(head_us), where=through_us > 0)
    part = (progress * NUM_PIVOTS * (1 + RESOLUTION)).astype(np.int64)
    order = np.lexsort((place, -rounded(through_us), part))
    order = order[able[order]]
    pivots = np.zeros(len(head_us), dtype=np.bool_)
    pivots[order[np.unique(part[order], return_index=True)[1]]] = True
    return pivots


def _sorted(order: IntArray, rank_us: FloatArray) -> IntArray:
    """By rank, highest first; a topological order stays one, as no op ranks above those before."""
    return order[np.argsort(-rounded(rank_us)[order], kind="stable")]


@kernel
def _sweep(order, before, num_after, pivot, time_us, work_us, share):  # type: ignore[no-untyped-def]
    """Heads of all ops, `[num_ops]`, in topological order; on the reversed graph, their tails.

    before: predecessors as offsets and indices, and the delays of their edges, always and apart.
    """
    offsets, indices, always, _ = before
    num_ops = len(order)
    head = np.zeros(num_ops)
    last = np.full(num_ops, -1, np.int64)  # predecessor on the longest path
    place = np.empty(num_ops, np.int64)
    # Distances from x and to v, near and far; near ones are -1 outside the window.
    near_head, far_head = np.full(num_ops, -1.0), np.empty(num_ops)
    near_tail, far_tail = np.full(num_ops, -1.0), np.empty(num_ops)
    for end in range(num_ops):
        v = order[end]
        place[v] = end
        for row in range(offsets[v], offsets[v + 1]):
            u = indices[row]
            ready = head[u] + time_us[u] + always[row]
            # Of those that are equal but for rounding, the latest in order.
            slack = RESOLUTION * ready
            if (
                last[v] < 0
                or ready > head[v] + slack
                or (ready >= head[v] - slack and place[u] > place[last[v]])
            ):
                last[v] = u
            head[v] = max(head[v], ready)
        if offsets[v + 1] - offsets[v] < 2:
            continue  # nothing beside the path
        first = 0 if pivot[v] else max(0, end - REACH)
        inside = _ancestors(order[first : end + 1], place, before, time_us, near_tail, far_tail)
        if pivot[v]:
            window = _window(inside, work_us, share[v], head, head, near_tail, far_tail)
            head[v] = max(head[v], window)
        x, num_forks = last[v], 0
        while x >= 0 and near_tail[x] >= 0 and num_forks < NUM_FORKS:
            if num_after[x] > 1:
                num_forks += 1
                ops = _descendants(x, inside, place, before, time_us, near_head, far_head)
                y = max(share[x], share[v])
                window = _window(ops, work_us, y, near_head, far_head, near_tail, far_tail)
                head[v] = max(head[v], head[x] + time_us[x] + window)
                for u in ops:
                    near_head[u] = -1.0
            x = last[x]
        for u in inside:
            near_tail[u] = -1.0
    return head


@kernel
def _ancestors(order, place, before, time_us, near, far):  # type: ignore[no-untyped-def]
    """Those of some ops in order that come before the last, the latest first; sets their tails."""
    offsets, indices, always, apart = before
    found, size = np.empty(len(order), np.int64), 0
    v, first = order[-1], place[order[0]]
    for u in order[::-1]:
        to_v, far_to_v = 0.0, np.inf  # v is on its own device
        if u != v:
            if near[u] < 0:
                continue
            found[size] = u
            size += 1
            to_v, far_to_v = near[u] + time_us[u], far[u] + time_us[u]
        for row in range(offsets[u], offsets[u + 1]):
            if place[indices[row]] >= first:
                _extend(near, far, indices[row], to_v, far_to_v, always[row], apart[row])
    return found[:size]


@kernel
def _descendants(x, inside, place, before, time_us, near, far):  # type: ignore[no-untyped-def]
    """Those of some ops, the latest first, that come after x, the earliest first; sets heads."""
    offsets, indices, always, apart = before
    found, size = np.empty(len(inside), np.int64), 0
    low, high = 0, len(inside)
    while low < high:
        middle = (low + high) >> 1
        if place[inside[middle]] > place[x]:
            low = middle + 1
        else:
            high = middle
    for u in inside[:low][::-1]:
        for row in range(offsets[u], offsets[u + 1]):
            w = indices[row]
            if w == x:  # on its own device
                _extend(near, far, u, 0.0, np.inf, always[row], apart[row])
            elif near[w] >= 0:
                from_x, far_from_x = near[w] + time_us[w], far[w] + time_us[w]
                _extend(near, far, u, from_x, far_from_x, always[row], apart[row])
        if near[u] >= 0:
            found[size] = u
            size += 1
    return found[:size]


@kernel
def _extend(near, far, op, path, far_path, always, apart):  # type: ignore[no-untyped-def]
    """Extend the path of a neighbour to this op: far of the other end, it crosses now or before."""
    if near[op] < 0:
        far[op] = 0.0
    near[op] = max(near[op], path + always)
    far[op] = max(far[op], min(path + apart, far_path + always))


@kernel
def _window(ops, work, y, near_head, far_head, near_tail, far_tail):  # type: ignore[no-untyped-def]
    """The bound on D from some of these ops, 0 without any; heads and tails are `[num_ops]`."""
    total = 0.0
    for op in ops:
        total += work[op]
    # Distances beyond the time that one device takes for all are worth no more than that.
    limit = total / y if y > 0 else np.inf
    ops = _cut(_cut(ops, work, y, near_head, far_head, limit), work, y, near_tail, far_tail, limit)
    if len(ops) == 0:
        return 0.0
    total, near_start, far_start, near_end, far_end = 0.0, np.inf, np.inf, np.inf, np.inf
    for op in ops:
        total += work[op]
        near_start, near_end = min(near_start, near_head[op]), min(near_end, near_tail[op])
        far_start = min(far_start, _at_most(far_head[op], near_head[op], limit))
        far_end = min(far_end, _at_most(far_tail[op], near_tail[op], limit))
    near, far = near_start + near_end, far_start + far_end
    spread = near + total + (1 - y) * (far - near)
    return min(spread, near + total / y) if y > 0 else spread


@kernel
def _cut(ops, work, y, near, far, limit):  # type: ignore[no-untyped-def]
    """Those ops with work whose far head (or tail) is above a threshold, the best one."""
    working, size = np.empty(len(ops), np.int64), 0
    distance, nearness = np.empty(len(ops)), np.empty(len(ops))
    longest = 0.0
    for op in ops:
        if work[op] > 0:
            working[size], nearness[size] = op, near[op]
            distance[size] = _at_most(far[op], near[op], limit)
            if distance[size] < np.inf:
                longest = max(longest, distance[size])
            size += 1
    # By distance, and of those that are equal but for rounding, the nearest first.
    unit = RESOLUTION * longest if longest > 0 else 1.0
    order = _by_two_keys(np.round(distance[:size] / unit), nearness[:size])
    best, first = -np.inf, size
    total, nearest = 0.0, np.inf
    for rank in range(size - 1, -1, -1):
        op = working[order[rank]]
        total, nearest = total + work[op], min(nearest, near[op])
        value = total + y * nearest + (1 - y) * distance[order[rank]]
        if value > best * (1 + RESOLUTION):
            best, first = value, rank
    return working[order[first:]]


@kernel
def _by_two_keys(first, second):  # type: ignore[no-untyped-def]
    """The order of rows by their first key, then by their second, then by their index."""
    if len(first) > FEW:
        order = np.argsort(second, kind="mergesort")
        return order[np.argsort(first[order], kind="mergesort")]
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


@kernel
def _at_most(far, near, limit):  # type: ignore[no-untyped-def]
    """A far distance cut off at a limit, but no shorter than the near one."""
    return min(far, max(near, limit))
