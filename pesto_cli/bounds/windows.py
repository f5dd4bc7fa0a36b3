"""Heads and tails that include transfers.

A window is the time D from the end of an op x to the start of a later op v. For every op u between
them, these distances hold:

    near head a_u    S_u - C_x >= a_u:  the longest path from x to u;
    far head a'_u    S_u - C_x >= a'_u, if u is on another device than x: on every path from x to u
                     some edge crosses devices, and the shortest transfer on it (or the signal)
                     adds to the path. The shortest transfer of an edge is over all pairs of devices
                     that its two ops may use; if they cannot share a device, it adds to every path;
    near tail q_u    S_v - C_u >= q_u, and the far tail q'_u if u is on another device than v.

Let J be a set of these ops, A = min_J a and Q = min_J q, A' and Q' likewise. The device of x runs
no op of J before A, other devices none before A'. The device of v runs none in the last Q of the
window, other devices none in the last Q'. With shares y_d of the devices, w_u = min_d y_d
time[u, d] (see `load`), W = sum_J w, and y the largest share of a device that x or v may use,

    W <= y (D - A - Q)+ + (1 - y) (D - A' - Q')+

If x and v are on two devices, the right side is no larger, because f+ is convex in f. So

    D >= A + Q + min(W / y, W + (1 - y) (A' - A + Q' - Q)):

either one device runs all of J, or other devices help, after transfers at both ends of the window.
With S_v in place of D, and the heads of the ops in place of a and a', the bound holds without x.

Papadimitriou and Yannakakis ("Towards an architecture-independent analysis of parallel algorithms",
1990) show that an op starts either after transfers of its predecessors' data, or after all of its
predecessors on one device. They assume any number of devices. Here devices are few, so the bound
also counts the work that other devices can do in the window.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import numpy as np

from pesto_cli.bounds.canonical import RESOLUTION, canonical_order, canonical_place, rounded
from pesto_cli.bounds.chains import heads, tails
from pesto_cli.bounds.load import device_shares, shared_work_us
from pesto_cli.bounds.sweep import EdgeRows, OpTimes, sweep
from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.problem import Problem

# Number of joins and of forks, spread over the step, for which a window of all ops before or after
# them is tried.
NUM_PIVOTS = 256


def heads_and_tails(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Bound the time before each op's start and after its end.

    Returns:
        Heads and tails in us, `[num_ops]` each: no op starts before its head, and the step lasts at
        least the op's tail after its end. They are at least `chains.heads` and `chains.tails`.
    """
    graph, time_us = problem.graph, problem.min_duration_us
    head_us, tail_us = heads(graph, time_us), tails(graph, time_us)
    shared = [(shared_work_us(problem, y), y) for y in device_shares(problem)]
    if not shared:
        return head_us, tail_us
    total_us = np.array([work_us.sum() for work_us, _ in shared])
    work_us, y = shared[int((total_us >= total_us.max() * (1 - RESOLUTION)).argmax())]
    largest_share = np.where(problem.allowed, y, 0.0).max(axis=1)
    times = OpTimes(time_us, work_us, largest_share)
    always_us, apart_us = edge_delays_us(problem)
    by_head = np.lexsort((graph.edges[:, 0], graph.edges[:, 1]))
    before, after = graph.predecessors, graph.successors
    into = EdgeRows(before.offsets, before.indices, always_us[by_head], apart_us[by_head])
    out = EdgeRows(after.offsets, after.indices, always_us, apart_us)
    order, place = canonical_order(problem), canonical_place(problem)
    forward = _sorted(order, tail_us + time_us)
    backward = _sorted(order[::-1], head_us + time_us)
    through_us = head_us + time_us + tail_us
    joins = _pivots(before.degree > 1, head_us, through_us, place)
    forks = _pivots(after.degree > 1, head_us, through_us, place)
    # Both directions run at once, as the kernel releases the interpreter's lock.
    with ThreadPoolExecutor(1) as beside:
        swept_back = beside.submit(sweep, backward, out, before.degree, forks, times)
        return sweep(forward, into, after.degree, joins, times), swept_back.result()


def edge_delays_us(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Return the least time between the end of an edge's tail and the start of its head.

    Returns:
        Two arrays in us, `[num_edges]` each: the least delay over all placements, and the least
        delay if the two ops are on different devices, inf if they never are.
    """
    graph, allowed, signal_us = problem.graph, problem.allowed, problem.machine.signal_us
    producer, consumer = graph.tensor_producer[graph.consumer_tensor], graph.consumers
    sent_us = np.full(len(consumer), np.inf)
    pairs = _distinct_pairs(problem)
    tables_us = problem.machine.transfers_us(graph.tensor_bytes[graph.consumer_tensor], pairs)
    may_send, may_take = allowed[producer].T.copy(), allowed[consumer].T.copy()
    for (src, dst), transfer_us in zip(pairs, tables_us, strict=True):
        possible = may_send[src] & may_take[dst]
        sent_us = np.where(possible, np.minimum(sent_us, transfer_us), sent_us)
    sent_us[graph.consumer_on_host] = signal_us
    # An edge may stand for several tensors and a control edge; the largest delay counts.
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


def _distinct_pairs(problem: Problem) -> list[tuple[int, int]]:
    """Return one of all pairs that are allowed for the same ops and have equal links."""
    machine = problem.machine
    _, kind = np.unique(problem.allowed, axis=1, return_inverse=True)
    kinds = kind.reshape(-1).tolist()
    columns = (machine.latency_us, machine.us_per_byte, machine.min_us)
    distinct = {
        (kinds[src], kinds[dst], *(column[src, dst] for column in columns)): (src, dst)
        for src, dst in permutations(range(problem.num_devices), 2)
    }
    return [*distinct.values()]


def _pivots(
    able: BoolArray, head_us: FloatArray, through_us: FloatArray, place: IntArray
) -> BoolArray:
    """Return a mask of pivots, `[num_ops]`: of each part of the step, the op on the longest path.

    able: the ops that may be pivots: joins, or forks. For an op with one predecessor (or successor)
        a window is no better than for that one.
    """
    progress = np.divide(head_us, through_us, out=np.zeros_like(head_us), where=through_us > 0)
    part = (progress * NUM_PIVOTS * (1 + RESOLUTION)).astype(np.int64)
    order = np.lexsort((place, -rounded(through_us), part))
    order = order[able[order]]
    pivots = np.zeros(len(head_us), dtype=np.bool_)
    pivots[order[np.unique(part[order], return_index=True)[1]]] = True
    return pivots


def _sorted(order: IntArray, rank_us: FloatArray) -> IntArray:
    """Sort by decreasing rank; the order stays topological, because ranks decrease along edges."""
    return order[np.argsort(-rounded(rank_us)[order], kind="stable")]
