"""Earliest task first with memory and favourite children, used by m-ETF and m-SCT.

Nodes are scheduled forward in time. When a device is free, it gets the topologically first node
that can start there now: the estimated arrival of its inputs is not later than now (`arrivals.py`),
and the device has enough free memory. The first node of a group decides the device of the group.
The inputs of a node are sent when the node is chosen, in the order of their sources.

m-SCT adds this rule. A device is awake if its last node has a ready favourite child, and the device
can start the child as early as any other device (`placer/m_sct.py`). An awake device waits for this
child. Meanwhile it only runs urgent nodes: nodes that could start now on all devices that may run
them.

Nodes that are left at the end of the time limit are placed in topological order, each on the device
where it ends first if transfers take no time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.kernels import kernel
from pesto_cli.strategies.baechi.arrivals import send_inputs
from pesto_cli.strategies.baechi.columns import (
    NONE,
    links_of,
    needed_of,
    nodes_of,
    start_of,
)
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.ready import (
    add,
    any_may_go,
    arrival_us,
    first_ready,
    first_startable,
    first_urgent,
    may_go,
    next_us,
    remove,
    update_arrivals,
    update_block,
)
from pesto_cli.strategies.baechi.settings import Settings

# Number of nodes that are scheduled between checks of the time limit: some milliseconds.
NODES_AT_A_TIME = 500


@dataclass(frozen=True, eq=False)
class OwnSchedule:
    """Baechi's own schedule.

    device, start_us: `[num_nodes]`.
    num_forced: number of nodes that were placed although they do not fit in its memory model.
    """

    device: IntArray
    start_us: FloatArray
    num_forced: int


def earliest_first(
    problem: Problem,
    placed: PlacementGraph,
    settings: Settings,
    favourite: IntArray,
    is_over: Callable[[], bool] = lambda: False,
) -> OwnSchedule:
    """Place and schedule all nodes.

    If no ready node fits in memory, the authors' program fails. Here the topologically first ready
    node then goes to the device with the most free memory.

    Args:
        problem: the problem.
        placed: its placement graph.
        settings: the model of links and memory.
        favourite: the favourite child of each node, or `NONE`, `[num_nodes]`.
        is_over: returns whether the time is over. It is called after every `NODES_AT_A_TIME` nodes;
            when it is true, the remaining nodes are placed without looking ahead.
    """
    nodes, links = nodes_of(placed, settings, favourite), links_of(problem, settings)
    needed, state = needed_of(problem, placed, settings), start_of(problem, nodes, settings)
    begin(nodes, links, needed, state)
    while state.counts[0] < placed.num_nodes:
        schedule(state.counts[0] + NODES_AT_A_TIME, nodes, links, needed, state)
        if is_over():
            break
    schedule_the_rest(nodes, links, needed, state)
    return OwnSchedule(state.device, state.start, int(state.counts[1]))


@kernel
def begin(nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Mark nodes without inputs as ready."""
    for node in np.flatnonzero(state.waiting == 0):
        add(node, nodes, links, needed, state)


@kernel
def schedule(until, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Advance in time until `until` nodes are scheduled."""
    while state.counts[0] < min(until, len(state.device)):
        _end_ops(nodes, links, needed, state)
        node, where, later = _choice(nodes, links, needed, state)
        if node == NONE and later < np.inf and _goes_on(nodes, needed, state):
            state.now[0] = later
            continue
        if node == NONE:
            state.counts[1] += 1
            node = first_ready(state)
            where = _roomiest(node, nodes, state)
        _start(node, where, nodes, links, needed, state)
        state.running[where] = state.last[where] = node
        remove(node, state)


@kernel
def _end_ops(nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """End the nodes that end by now, and mark children without other open inputs as ready."""
    for here in range(len(state.busy)):
        ended = state.running[here]
        if ended == NONE or state.end[ended] > state.now[0]:
            continue
        state.running[here] = NONE
        for row in range(nodes.child_offsets[ended], nodes.child_offsets[ended + 1]):
            child = nodes.children[row]
            state.waiting[child] -= 1
            if state.waiting[child] == 0:
                add(child, nodes, links, needed, state)


@kernel
def _goes_on(nodes, needed, state):  # type: ignore[no-untyped-def]
    """Return whether a node can start later: a node is running, or a ready node fits somewhere."""
    return (state.running != NONE).any() or any_may_go(nodes, needed, state)


@kernel
def _choice(nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Return (node, device, later): the first node that can start now, and its device.

    If there is none, node is `NONE`, and no node can start before the time `later`; a node may or
    may not be able to start then.
    """
    best, where, later, now = NONE, NONE, np.inf, state.now[0]
    for here in range(len(state.busy)):
        if state.running[here] != NONE:
            later = min(later, state.end[state.running[here]])
            continue
        node, at = _choice_of(here, now, nodes, links, needed, state)
        if node == NONE:
            later = min(later, at)
        elif (
            best == NONE
            or node < best
            or (node == best and nodes.duration[node, here] < nodes.duration[node, where])
        ):
            best, where = node, here
    return best, where, later


@kernel
def _choice_of(here, now, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Return the node that a free device runs now, or `NONE`, and the time of the next check."""
    awaited = _awaited(here, now, nodes, links, needed, state)
    if awaited == NONE:
        return first_startable(here, now, nodes, links, needed, state)
    node = first_urgent(here, now, nodes, links, needed, state)
    if node != NONE:
        return node, now
    if arrival_us(awaited, here, nodes, links, state) <= now:
        return awaited, now
    later = np.inf
    for device in range(len(state.busy)):
        later = min(later, next_us(device, now, nodes, links, needed, state))
    return NONE, later


@kernel
def _awaited(here, now, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Return the favourite child for which a free device is awake, or `NONE`."""
    child = NONE if state.last[here] == NONE else nodes.favourite[state.last[here]]
    if child == NONE or not state.is_ready[child]:
        return NONE
    if state.group_device[nodes.group[child]] != NONE:
        return NONE
    if not may_go(child, here, nodes, needed, state):
        return NONE
    start = max(arrival_us(child, here, nodes, links, state), now)
    for device in range(len(state.busy)):
        if may_go(child, device, nodes, needed, state):
            arrival = arrival_us(child, device, nodes, links, state)
            if max(arrival, state.free[device], now) < start:
                return NONE
    return child


@kernel
def _roomiest(node, nodes, state):  # type: ignore[no-untyped-def]
    """Return a device for a node that fits nowhere: its group's, or that with most free memory."""
    own = nodes.group[node]
    where = state.group_device[own]
    if where != NONE:
        return where
    for here in range(len(state.room)):
        if nodes.allowed[own, here] and (where == NONE or state.room[here] > state.room[where]):
            where = here
    return where


@kernel
def _start(node, where, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Decide the device of a node's group, send its inputs, and start it when they have arrived."""
    _pin(node, where, nodes, needed, state)
    sent = np.empty(nodes.input_offsets[node + 1] - nodes.input_offsets[node], np.int64)
    there_us, num_sent = send_inputs(node, where, nodes, links, state, sent)
    state.device[node] = where
    state.start[node] = max(there_us, state.free[where], state.now[0])
    state.end[node] = state.start[node] + nodes.duration[node, where]
    state.free[where] = state.end[node]
    _hold(node, nodes, needed, state)
    state.counts[0] += 1
    for tensor in sent[:num_sent]:
        for row in range(nodes.taker_offsets[tensor], nodes.taker_offsets[tensor + 1]):
            taker = nodes.takers[row]
            if taker != node and state.is_ready[taker] and not state.is_settled[taker]:
                update_arrivals(taker, nodes, links, needed, state)


@kernel
def _pin(node, here, nodes, needed, state):  # type: ignore[no-untyped-def]
    """Decide the device of a node's group, if undecided, and reserve the group's memory there."""
    own = nodes.group[node]
    if state.group_device[own] != NONE:
        return
    state.group_device[own] = here
    if len(needed.reserve) > 0:
        state.credit[own] = needed.reserve[own]
        state.room[here] -= needed.reserve[own]
        for row in range(nodes.member_offsets[own], nodes.member_offsets[own + 1]):
            if state.is_ready[nodes.members[row]]:
                update_block(nodes.members[row], nodes, needed, state)


@kernel
def _hold(node, nodes, needed, state):  # type: ignore[no-untyped-def]
    """Take the memory of a scheduled node, and free outputs of which it is the last consumer."""
    own, here = nodes.group[node], state.device[node]
    taken = needed.variables[node] + needed.outputs[node]
    from_credit = max(0.0, min(taken, state.credit[own]))
    state.credit[own] -= from_credit
    state.room[here] -= taken - from_credit
    previous = NONE
    for entry in range(nodes.input_offsets[node], nodes.input_offsets[node + 1]):
        used = nodes.source[entry]
        if used == previous:
            continue
        previous = used
        state.left_to_use[used] -= 1
        if state.left_to_use[used] == 0:
            _release(used, nodes, needed, state)
    state.unscheduled[own] -= 1
    if state.unscheduled[own] == 0:
        state.room[here] += state.credit[own]
        state.credit[own] = 0.0


@kernel
def _release(used, nodes, needed, state):  # type: ignore[no-untyped-def]
    """Free the memory of a node's outputs after their last use.

    If its group has reserved memory and unscheduled nodes, the bytes go back to its reserve first.
    """
    of, back = nodes.group[used], 0.0
    if len(needed.reserve) > 0 and state.unscheduled[of] > 0:
        back = min(needed.outputs[used], needed.reserve[of] - state.credit[of])
    state.credit[of] += back
    state.room[state.device[used]] += needed.outputs[used] - back


@kernel
def schedule_the_rest(nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Place the remaining nodes in topological order, each by earliest end without transfers."""
    for here in range(len(state.busy)):
        if state.running[here] != NONE:
            _count_down(state.running[here], nodes.child_offsets, nodes.children, state.waiting)
    is_left = (state.device == NONE) & (state.waiting == 0)
    queue, size = np.empty(len(is_left), np.int64), 0
    for node in np.flatnonzero(is_left):
        queue[size] = node
        size += 1
    state.is_ready[:] = False
    first = 0
    while first < size:
        node = queue[first]
        where = _soonest_end(node, nodes, needed, state)
        if where == NONE:
            state.counts[1] += 1
            where = _roomiest(node, nodes, state)
        _start(node, where, nodes, links, needed, state)
        _count_down(node, nodes.child_offsets, nodes.children, state.waiting)
        for row in range(nodes.child_offsets[node], nodes.child_offsets[node + 1]):
            if state.waiting[nodes.children[row]] == 0:
                queue[size] = nodes.children[row]
                size += 1
        first += 1


@kernel
def _count_down(node, child_offsets, children, waiting):  # type: ignore[no-untyped-def]
    """Count one open input less for each child of a node."""
    for row in range(child_offsets[node], child_offsets[node + 1]):
        waiting[children[row]] -= 1


@kernel
def _soonest_end(node, nodes, needed, state):  # type: ignore[no-untyped-def]
    """Return the device with enough memory where a node ends first without transfers, or `NONE`."""
    where, soonest = NONE, np.inf
    for here in range(len(state.busy)):
        end = state.free[here] + nodes.duration[node, here]
        if end < soonest and may_go(node, here, nodes, needed, state):
            where, soonest = here, end
    return where
