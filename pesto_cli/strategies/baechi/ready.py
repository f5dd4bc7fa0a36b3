"""The nodes that are ready, in blocks of neighbours, so that few are looked at to find the next.

Of every node and device is known since when its inputs may be there at the soonest: at `since`, or
where `watched` names a device, `since` after that one and the node's own are idle (`arrivals.py`).
This only grows, as devices only become busy for longer, until a tensor that the node takes is sent.
Of every block is known the soonest of its nodes for each watched device, and the least memory that
one of them needs. A block is looked through only if both allow that one of its nodes starts.
"""

import numpy as np

from pesto_cli.kernels import kernel
from pesto_cli.strategies.baechi.arrivals import reckon
from pesto_cli.strategies.baechi.columns import NONE


@kernel
def _block_of(node, state):  # type: ignore[no-untyped-def]
    return node // state.block_offsets[1]


@kernel
def _is_out(node, here, nodes, state):  # type: ignore[no-untyped-def]
    """Whether a node will never run on a device, by affinity or as its group is elsewhere."""
    own = nodes.group[node]
    return not nodes.allowed[own, here] or (
        state.group_device[own] != NONE and state.group_device[own] != here
    )


@kernel
def may_go(node, here, nodes, needed, state):  # type: ignore[no-untyped-def]
    """Whether a ready node may run on a device: affinity, its group, and memory."""
    if _is_out(node, here, nodes, state):
        return False
    own = nodes.group[node]
    if state.group_device[own] == NONE:
        reserves = len(needed.reserve) > 0
        claim = needed.reserve[own] if reserves else needed.group_variables[own]
        if claim > state.room[here]:
            return False
        if reserves:
            return True
    taken = needed.variables[node] + needed.outputs[node]
    return taken <= state.room[here] + state.credit[own]


@kernel
def least_need(node, nodes, needed, state):  # type: ignore[no-untyped-def]
    """No more than the room that a node needs; what its group reserved may be enough."""
    if len(needed.reserve) == 0:
        return needed.variables[node] + needed.outputs[node]
    own = nodes.group[node]
    return needed.reserve[own] if state.group_device[own] == NONE else -np.inf


@kernel
def arrival_us(node, here, nodes, links, state):  # type: ignore[no-untyped-def]
    """When all inputs of a ready node can be on a device."""
    if state.is_settled[node]:
        return state.since[node, here]
    arrival, _, watched, since = reckon(node, here, nodes, links, state)
    state.watched[node, here], state.since[node, here] = watched, since
    return arrival


@kernel
def soonest_us(watched, since, here, busy):  # type: ignore[no-untyped-def]
    """Before this, the inputs of a node cannot be on a device."""
    if watched == NONE:
        return since
    return max(busy[watched], busy[here]) + since


@kernel
def note(node, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Reckon when the inputs of a ready node can be on each device, and tell its block."""
    sends = False
    for here in range(len(state.busy)):
        _, sends_here, watched, since = reckon(node, here, nodes, links, state)
        state.watched[node, here], state.since[node, here] = watched, since
        sends |= sends_here
    state.is_settled[node] = not sends
    tell(node, nodes, needed, state)


@kernel
def tell(node, nodes, needed, state):  # type: ignore[no-untyped-def]
    """Let a block know what is known of one of its ready nodes."""
    block = _block_of(node, state)
    need = least_need(node, nodes, needed, state)
    for here in range(len(state.busy)):
        if not _is_out(node, here, nodes, state):
            watched = state.watched[node, here]
            soonest = state.soonest[block, here]
            soonest[watched] = min(soonest[watched], state.since[node, here])
            state.least_need[block, here] = min(state.least_need[block, here], need)


@kernel
def add(node, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """A node is ready."""
    state.is_ready[node] = True
    state.num_ready[_block_of(node, state)] += 1
    note(node, nodes, links, needed, state)


@kernel
def remove(node, state):  # type: ignore[no-untyped-def]
    """A node is ready no more; its block may know of it until it is looked through."""
    state.is_ready[node] = False
    state.num_ready[_block_of(node, state)] -= 1


# Most of the time goes into what follows. So the loops that only skip have single columns as
# arguments: to hand on a state costs as much as to look at a hundred numbers.


@kernel
def _next_ready(node, last, is_ready):  # type: ignore[no-untyped-def]
    """The first ready node from this one on, or `last`."""
    while node < last and not is_ready[node]:
        node += 1
    return node


@kernel
def _next_block(block, here, num_ready, least_need, room):  # type: ignore[no-untyped-def]
    """The first block from this one on with room on a device for a ready node, or their number."""
    while block < len(num_ready):
        if num_ready[block] > 0 and least_need[block, here] <= room[here]:
            break
        block += 1
    return block


@kernel
def _block_us(here, soonest, busy):  # type: ignore[no-untyped-def]
    """Before this, no node of a block can start on a device, by what the block knows of it."""
    least = soonest[NONE]
    for watched in range(len(busy)):
        least = min(least, max(busy[watched], busy[here]) + soonest[watched])
    return least


@kernel
def first_startable(here, now, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """The first node that may start on a device by now, or `NONE`; and before when no other can."""
    later = np.inf
    block = _next_block(0, here, state.num_ready, state.least_need, state.room)
    while block < len(state.num_ready):
        at = _block_us(here, state.soonest[block, here], state.busy)
        if at <= now:
            node, at = _look_through(block, here, now, nodes, links, needed, state)
            if node != NONE:
                return node, now
        later = min(later, at)
        block = _next_block(block + 1, here, state.num_ready, state.least_need, state.room)
    return NONE, later


@kernel
def _look_through(block, here, now, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """The first node of a block that may start on a device by now, or `NONE`.

    And before when no other can. If there is none, the block knows its nodes exactly afterwards.
    """
    later = np.inf
    soonest, need = np.full(len(state.busy) + 1, np.inf), np.inf
    node, last = state.block_offsets[block], state.block_offsets[block + 1]
    node = _next_ready(node, last, state.is_ready)
    while node < last:
        if not _is_out(node, here, nodes, state):
            at = soonest_us(state.watched[node, here], state.since[node, here], here, state.busy)
            fits = may_go(node, here, nodes, needed, state)
            if fits and at <= now:
                at = arrival_us(node, here, nodes, links, state)
                if at <= now:
                    return node, now
            if fits:
                later = min(later, at)
            watched = state.watched[node, here]
            soonest[watched] = min(soonest[watched], state.since[node, here])
            need = min(need, least_need(node, nodes, needed, state))
        node = _next_ready(node + 1, last, state.is_ready)
    state.soonest[block, here] = soonest
    state.least_need[block, here] = need
    return NONE, later


@kernel
def first_urgent(here, now, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """The first node that by now may start on this device and on all where it may go, or `NONE`."""
    block = _next_block(0, here, state.num_ready, state.least_need, state.room)
    while block < len(state.num_ready):
        node, last = state.block_offsets[block], state.block_offsets[block + 1]
        if _block_us(here, state.soonest[block, here], state.busy) > now:
            node = last
        node = _next_ready(node, last, state.is_ready)
        while node < last:
            if _is_urgent(node, here, now, nodes, links, needed, state):
                return node
            node = _next_ready(node + 1, last, state.is_ready)
        block = _next_block(block + 1, here, state.num_ready, state.least_need, state.room)
    return NONE


@kernel
def _is_urgent(node, here, now, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    if not may_go(node, here, nodes, needed, state):
        return False
    for device in range(len(state.busy)):
        if may_go(node, device, nodes, needed, state) and (
            state.free[device] > now or arrival_us(node, device, nodes, links, state) > now
        ):
            return False
    return True


@kernel
def next_us(here, now, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Between now and this instant, no other node can come to be able to start on a device."""
    later = np.inf
    block = _next_block(0, here, state.num_ready, state.least_need, state.room)
    while block < len(state.num_ready):
        node, last = state.block_offsets[block], state.block_offsets[block + 1]
        at = _block_us(here, state.soonest[block, here], state.busy)
        if at > now:
            later, node = min(later, at), last
        node = _next_ready(node, last, state.is_ready)
        while node < last:
            if may_go(node, here, nodes, needed, state):
                at = arrival_us(node, here, nodes, links, state)
                later = min(later, at) if at > now else later
            node = _next_ready(node + 1, last, state.is_ready)
        block = _next_block(block + 1, here, state.num_ready, state.least_need, state.room)
    return later


@kernel
def first_ready(state):  # type: ignore[no-untyped-def]
    """The topologically first node that is ready."""
    block = 0
    while state.num_ready[block] == 0:
        block += 1
    return _next_ready(state.block_offsets[block], len(state.is_ready), state.is_ready)


@kernel
def any_may_go(nodes, needed, state):  # type: ignore[no-untyped-def]
    """Whether some ready node finds room on some device."""
    node = first_ready(state)
    while node < len(state.is_ready):
        for here in range(len(state.busy)):
            if may_go(node, here, nodes, needed, state):
                return True
        node = _next_ready(node + 1, len(state.is_ready), state.is_ready)
    return False
