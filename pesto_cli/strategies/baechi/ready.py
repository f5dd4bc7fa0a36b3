"""The ready nodes, in blocks of consecutive nodes, so that few nodes are tested to find the next.

For each node and device, `watched` and `since` give a lower bound on the arrival of the node's
inputs. The bound is `since`, or, if `watched` is a device, `since` after both devices are idle
(`arrivals.py`). It never falls until an input of the node is sent, as the busy times of devices
only grow. Each block stores the smallest `since` of its nodes for each watched device, and the
least memory that one of its nodes needs. A block is searched only if both values allow that a node
starts.
"""

import numpy as np

from pesto_cli.kernels import kernel
from pesto_cli.strategies.baechi.arrivals import estimate_arrival
from pesto_cli.strategies.baechi.columns import NONE


@kernel
def _block_of(node, state):  # type: ignore[no-untyped-def]
    return node // state.block_offsets[1]


@kernel
def _is_out(node, here, nodes, state):  # type: ignore[no-untyped-def]
    """Return whether a node can never run on a device, by affinity or its group's device."""
    own = nodes.group[node]
    return not nodes.allowed[own, here] or (
        state.group_device[own] != NONE and state.group_device[own] != here
    )


@kernel
def may_go(node, here, nodes, needed, state):  # type: ignore[no-untyped-def]
    """Return whether a ready node may run on a device, by affinity, group and free memory."""
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
    """Return a lower bound on the free memory that a node needs on a device, in bytes.

    The bound is -inf if the group has reserved memory on the device, which may be enough.
    """
    if len(needed.reserve) == 0:
        return needed.variables[node] + needed.outputs[node]
    own = nodes.group[node]
    return needed.reserve[own] if state.group_device[own] == NONE else -np.inf


@kernel
def arrival_us(node, here, nodes, links, state):  # type: ignore[no-untyped-def]
    """Return the estimated arrival of all inputs of a ready node at a device."""
    if state.is_settled[node]:
        return state.since[node, here]
    arrival, _, watched, since = estimate_arrival(node, here, nodes, links, state)
    state.watched[node, here], state.since[node, here] = watched, since
    return arrival


@kernel
def soonest_us(watched, since, here, busy):  # type: ignore[no-untyped-def]
    """Return the lower bound on the arrival of a node's inputs at a device."""
    if watched == NONE:
        return since
    return max(busy[watched], busy[here]) + since


@kernel
def update_arrivals(node, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Update the arrival bounds of a ready node for all devices, and its block."""
    sends = False
    for here in range(len(state.busy)):
        _, sends_here, watched, since = estimate_arrival(node, here, nodes, links, state)
        state.watched[node, here], state.since[node, here] = watched, since
        sends |= sends_here
    state.is_settled[node] = not sends
    update_block(node, nodes, needed, state)


@kernel
def update_block(node, nodes, needed, state):  # type: ignore[no-untyped-def]
    """Update the values of a node's block with those of the node."""
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
    """Mark a node as ready."""
    state.is_ready[node] = True
    state.num_ready[_block_of(node, state)] += 1
    update_arrivals(node, nodes, links, needed, state)


@kernel
def remove(node, state):  # type: ignore[no-untyped-def]
    """Unmark a node. The values of its block may include it until the block is searched."""
    state.is_ready[node] = False
    state.num_ready[_block_of(node, state)] -= 1


# The functions below take most of the time. So loops that only skip entries get single columns as
# arguments: passing a whole state costs as much as reading a hundred numbers.


@kernel
def _next_ready(node, last, is_ready):  # type: ignore[no-untyped-def]
    """Return the first ready node from `node` on, or `last`."""
    while node < last and not is_ready[node]:
        node += 1
    return node


@kernel
def _next_block(block, here, num_ready, least_need, room):  # type: ignore[no-untyped-def]
    """Return the first block from `block` on with a ready node that may fit on a device.

    Return the number of blocks if there is none.
    """
    while block < len(num_ready):
        if num_ready[block] > 0 and least_need[block, here] <= room[here]:
            break
        block += 1
    return block


@kernel
def _block_us(here, soonest, busy):  # type: ignore[no-untyped-def]
    """Return a lower bound on the start of all nodes of a block on a device."""
    least = soonest[NONE]
    for watched in range(len(busy)):
        least = min(least, max(busy[watched], busy[here]) + soonest[watched])
    return least


@kernel
def first_startable(here, now, nodes, links, needed, state):  # type: ignore[no-untyped-def]
    """Return the first node that can start on a device now, or `NONE`, and a time.

    If there is none, no node can start before that time.
    """
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
    """Return the first node of a block that can start on a device now, or `NONE`, and a time.

    If there is none, no node of the block can start before that time, and the values of the block
    are exact afterwards.
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
    """Return the first node that can start now here and on all its other devices, or `NONE`."""
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
    """Return a time before which no node can start on a device that cannot start there now."""
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
    """Return the topologically first ready node."""
    block = 0
    while state.num_ready[block] == 0:
        block += 1
    return _next_ready(state.block_offsets[block], len(state.is_ready), state.is_ready)


@kernel
def any_may_go(nodes, needed, state):  # type: ignore[no-untyped-def]
    """Return whether any ready node fits in the memory of any device."""
    node = first_ready(state)
    while node < len(state.is_ready):
        for here in range(len(state.busy)):
            if may_go(node, here, nodes, needed, state):
                return True
        node = _next_ready(node + 1, len(state.is_ready), state.is_ready)
    return False
