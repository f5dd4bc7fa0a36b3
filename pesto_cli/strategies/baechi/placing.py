"""The placer of `earliest`: time goes forward, and at each instant devices take nodes."""

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.kernels import kernel, step
from pesto_cli.strategies.baechi.room import hold, may_go, pin, roomiest
from pesto_cli.strategies.baechi.state import (
    NONE,
    PlacerInput,
    PlacerState,
    initial_state,
    make_ready,
    make_unready,
)
from pesto_cli.strategies.baechi.transfers import reckon, send_inputs


@kernel
def place(given: PlacerInput, room: FloatArray) -> tuple[IntArray, FloatArray, int]:
    """Device and start of every node, and how many found no room.

    Args:
        given: the nodes, and so on.
        room: `[num_devices]`, bytes.
    """
    state = initial_state(given, room)
    now, num_scheduled, num_forced = 0.0, 0, 0
    while num_scheduled < len(given.graph.group):
        end_nodes(given, state, now)
        reckon_starts(given, state, now)
        node, here, later_us = first_choice(given, state, now)
        if node == NONE and later_us < np.inf:
            now = later_us
            continue
        if node == NONE:
            num_forced += 1
            node = first_ready(state)
            here = roomiest(given, state, node)
        schedule(given, state, node, here, now)
        num_scheduled += 1
    return state.nodes.device, state.nodes.start_us, num_forced


@step
def end_nodes(given: PlacerInput, state: PlacerState, now: float) -> None:
    """PlacerNodes end; their children may be ready."""
    graph, running = given.graph, state.devices.running
    for here in range(len(running)):
        ended = running[here]
        if ended == NONE or state.nodes.end_us[ended] > now:
            continue
        running[here] = NONE
        for row in range(graph.offsets[ended], graph.offsets[ended + 1]):
            child = graph.children[row]
            state.nodes.num_awaited[child] -= 1
            if state.nodes.num_awaited[child] == 0:
                make_ready(state.nodes, child)
                reckon(given, state, child)


@step
def reckon_starts(given: PlacerInput, state: PlacerState, now: float) -> None:
    """When each ready node could start on each device, inf where it may not go."""
    arrival_us, free_us = state.reckoned.arrival_us, state.devices.free_us
    for row in range(state.nodes.num_ready[0]):
        node = state.nodes.ready[row]
        for here in range(len(free_us)):
            start_us = np.inf
            if may_go(given, state, node, here):
                start_us = max(arrival_us[node, here], free_us[here], now)
            state.reckoned.start_us[node, here] = start_us


@step
def first_choice(given: PlacerInput, state: PlacerState, now: float) -> tuple[int, int, float]:
    """Of what free devices would run now, the first node, and where; when more may be possible.

    One that several devices would run goes where it takes the least time.
    """
    duration_us, running = given.graph.duration_us, state.devices.running
    best, where, later_us = NONE, NONE, np.inf
    for here in range(len(running)):
        if running[here] != NONE:
            later_us = min(later_us, state.nodes.end_us[running[here]])
            continue
        node, next_us = choice(given, state, here, now)
        if node == NONE:
            later_us = min(later_us, next_us)
        elif (
            best == NONE
            or node < best
            or (node == best and duration_us[node, here] < duration_us[node, where])
        ):
            best, where = node, here
    return best, where, later_us


@step
def choice(given: PlacerInput, state: PlacerState, here: int, now: float) -> tuple[int, float]:
    """What a free device runs now, or `NONE`; and when it may next run something."""
    child, start_us = awaited(given, state, here), state.reckoned.start_us
    if child == NONE:
        node, next_us = earliest(state, here)
        return (node if next_us <= now else NONE), next_us
    node, next_us = urgent(state, here)
    if node != NONE and next_us <= now:
        return node, next_us
    if start_us[child, here] <= now:
        return child, now
    return NONE, min(next_us, start_us[child, here])


@step
def awaited(given: PlacerInput, state: PlacerState, here: int) -> int:
    """The favourite child that a device is awake for, or `NONE`."""
    last, start_us = state.devices.last[here], state.reckoned.start_us
    child: int = NONE if last == NONE else given.graph.favourite[last]
    if child == NONE or not state.nodes.is_ready[child]:
        return NONE
    if state.groups.device[given.graph.group[child]] != NONE or start_us[child, here] == np.inf:
        return NONE
    for there in range(start_us.shape[1]):
        if start_us[child, there] < start_us[child, here]:
            return NONE
    return child


@step
def earliest(state: PlacerState, here: int) -> tuple[int, float]:
    """The ready node of earliest start on a device, ties to the first; and that start."""
    best, best_us = NONE, np.inf
    for row in range(state.nodes.num_ready[0]):
        node = state.nodes.ready[row]
        start_us = state.reckoned.start_us[node, here]
        if start_us < best_us or (start_us == best_us and start_us < np.inf and node < best):
            best, best_us = node, start_us
    return best, best_us


@step
def urgent(state: PlacerState, here: int) -> tuple[int, float]:
    """The ready node that first may start wherever it may go, this device included."""
    start_us, best, best_us = state.reckoned.start_us, NONE, np.inf
    for row in range(state.nodes.num_ready[0]):
        node, latest_us = state.nodes.ready[row], 0.0
        if start_us[node, here] == np.inf:
            continue
        for there in range(start_us.shape[1]):
            if start_us[node, there] < np.inf:
                latest_us = max(latest_us, start_us[node, there])
        if latest_us < best_us or (latest_us == best_us and node < best):
            best, best_us = node, latest_us
    return best, best_us


@step
def first_ready(state: PlacerState) -> int:
    """The ready node of lowest number."""
    first = state.nodes.ready[0]
    for row in range(state.nodes.num_ready[0]):
        first = min(first, state.nodes.ready[row])
    return int(first)


@step
def schedule(given: PlacerInput, state: PlacerState, node: int, here: int, now: float) -> None:
    """A node goes to a device, and starts when its inputs are there and the device is free."""
    nodes, devices = state.nodes, state.devices
    pin(given, state, node, here)
    arrival_us, sent = send_inputs(given, state, node, here)
    nodes.device[node] = here
    nodes.start_us[node] = max(arrival_us, devices.free_us[here], now)
    nodes.end_us[node] = nodes.start_us[node] + given.graph.duration_us[node, here]
    devices.free_us[here] = nodes.end_us[node]
    devices.running[here] = devices.last[here] = node
    hold(given, state, node)
    make_unready(nodes, node)
    if sent:
        reckon_again(given, state)


@step
def reckon_again(given: PlacerInput, state: PlacerState) -> None:
    """Something was sent: other arrivals are to be expected where something is to be sent."""
    for row in range(state.nodes.num_ready[0]):
        node, sends = state.nodes.ready[row], False
        for here in range(state.reckoned.sends.shape[1]):
            sends = sends or state.reckoned.sends[node, here]
        if sends:
            reckon(given, state, node)
