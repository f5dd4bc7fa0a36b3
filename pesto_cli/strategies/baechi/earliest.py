"""Earliest task first with memory and favourite children: what m-ETF and m-SCT share.

Time goes forward. Whenever a device is free, it takes the topologically first op that may start
on it now: all its inputs are reckoned to be there, and its memory has room. An op pins its group.
A device sends or receives one tensor at a time (`placer/device.py`), and keeps what it received for
other ops. Only when an op is chosen, its inputs are sent, in the order of their sources.

m-SCT adds: a device whose last op has a favourite child that is ready, and that it can start as
early as any other, is awake (`placer/m_sct.py`). It waits for that child, and until then takes only
urgent ops: those that may start by now on every device that may take them.
"""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.kernels import kernel
from pesto_cli.strategies.baechi.memory import needs, plan_bytes
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.settings import Settings

NONE = -1


@dataclass(frozen=True, eq=False)
class Plan:
    """Baechi's own schedule.

    device, start_us: `[num_nodes]`.
    num_forced: nodes that found no room in its model of memory, and were placed all the same.
    """

    device: IntArray
    start_us: FloatArray
    num_forced: int


def earliest_first(
    problem: Problem, placed: PlacementGraph, settings: Settings, favourite: IntArray
) -> Plan:
    """Place and schedule every node; `favourite` is `[num_nodes]`, a child or `NONE`.

    Where the program gives up, because nothing fits any more, the topologically first ready op goes
    to the device that has most room.
    """
    need, machine = needs(problem, placed), problem.machine
    reserve = need.group_variables + need.group_outputs
    if not settings.reserve_memory:
        reserve = reserve[:0]
    device, start_us, num_forced = _place(
        placed.duration_us,
        placed.group,
        placed.group_allowed,
        (
            placed.input_offsets,
            placed.input_source,
            placed.input_tensor,
            placed.input_is_signal & (not settings.signals_cost_transfers),
            placed.tensor_bytes,
        ),
        (placed.successors.offsets, placed.successors.indices),
        (
            machine.latency_us * settings.comm_factor,
            machine.us_per_byte * settings.comm_factor,
            machine.min_us * settings.comm_factor,
            float(machine.signal_us),
        ),
        (need.variables, need.outputs, need.group_variables, reserve),
        plan_bytes(problem, settings.memory_fraction),
        favourite,
    )
    return Plan(device, start_us, int(num_forced))


@kernel
def _transfer_us(links, src, dst, num_bytes):  # type: ignore[no-untyped-def]
    latency, slope, floor = links[:3]
    return max(floor[src, dst], latency[src, dst] + slope[src, dst] * num_bytes)


@kernel
def _arrival_us(node, here, inputs, links, device, end, received, busy):  # type: ignore[no-untyped-def]
    """When all inputs of a node can be on a device; whether anything is to be sent for it.

    The tensors from one source are reckoned as one, and those from several as if alone.
    """
    offsets, source, tensor, is_signal, num_bytes = inputs
    arrival, sends = 0.0, False
    entry, last = offsets[node], offsets[node + 1]
    while entry < last:
        first = source[entry]
        there = device[first]
        to_send = 0.0
        while entry < last and source[entry] == first:
            if there == here:
                arrival = max(arrival, end[first])
            elif is_signal[entry]:
                arrival = max(arrival, end[first] + links[3])
            elif received[tensor[entry], here] >= 0.0:
                arrival = max(arrival, received[tensor[entry], here])
            else:
                to_send += _transfer_us(links, there, here, num_bytes[tensor[entry]])
            entry += 1
        if to_send > 0.0:
            sends = True
            sent = max(end[first], busy[there])
            arrival = max(arrival, max(sent, busy[here]) + to_send)
    return arrival, sends


@kernel
def _send_inputs(node, here, inputs, links, device, end, received, busy):  # type: ignore[no-untyped-def]
    """Send what a device lacks for a node; when all is there, and whether anything was sent."""
    offsets, source, tensor, is_signal, num_bytes = inputs
    arrival, sends = 0.0, False
    for entry in range(offsets[node], offsets[node + 1]):
        first, what = source[entry], tensor[entry]
        there = device[first]
        if there == here:
            arrival = max(arrival, end[first])
        elif is_signal[entry]:
            arrival = max(arrival, end[first] + links[3])
        else:
            if received[what, here] < 0.0:
                takes = _transfer_us(links, there, here, num_bytes[what])
                sent = max(end[first], busy[there])
                busy[there] = sent + takes
                busy[here] = max(sent, busy[here]) + takes
                received[what, here] = busy[here]
                sends = True
            arrival = max(arrival, received[what, here])
    return arrival, sends


@kernel
def _reckon(node, inputs, links, device, end, received, busy, arrival, sends):  # type: ignore[no-untyped-def]
    for here in range(len(busy)):
        arrival[node, here], sends[node, here] = _arrival_us(
            node, here, inputs, links, device, end, received, busy
        )


@kernel
def _may_go(node, here, groups, needed, room):  # type: ignore[no-untyped-def]
    """Whether a ready node may run on a device: affinity, its group, and memory."""
    group, allowed, group_device, credit, _ = groups
    variables, outputs, group_variables, reserve = needed
    own = group[node]
    if group_device[own] != NONE and group_device[own] != here:
        return False
    if group_device[own] == NONE:
        claim = reserve[own] if len(reserve) > 0 else group_variables[own]
        if not allowed[own, here] or claim > room[here]:
            return False
        if len(reserve) > 0:
            return True
    return variables[node] + outputs[node] <= room[here] + credit[own]


@kernel
def _earliest(ready, here, starts):  # type: ignore[no-untyped-def]
    """The ready node of earliest start on a device, ties to the first; and that start."""
    best, best_us = NONE, np.inf
    for node in ready:
        start = starts[node, here]
        if start < best_us or (start == best_us and start < np.inf and node < best):
            best, best_us = node, start
    return best, best_us


@kernel
def _urgent(ready, here, starts):  # type: ignore[no-untyped-def]
    """The ready node that first may start wherever it may go, this device included."""
    best, best_us = NONE, np.inf
    for node in ready:
        if starts[node, here] == np.inf:
            continue
        latest = 0.0
        for start in starts[node]:
            if start < np.inf:
                latest = max(latest, start)
        if latest < best_us or (latest == best_us and node < best):
            best, best_us = node, latest
    return best, best_us


@kernel
def _awaited(here, last, favourite, is_ready, groups, starts):  # type: ignore[no-untyped-def]
    """The favourite child that a device is awake for, or `NONE`."""
    group, _, group_device, _, _ = groups
    child = NONE if last[here] == NONE else favourite[last[here]]
    if child == NONE or not is_ready[child] or group_device[group[child]] != NONE:
        return NONE
    start = starts[child, here]
    return child if start < np.inf and start == starts[child].min() else NONE


@kernel
def _choice(here, ready, starts, awaited, now):  # type: ignore[no-untyped-def]
    """What a free device runs now, or `NONE`; and when it may next run something."""
    if awaited == NONE:
        node, start = _earliest(ready, here, starts)
        return (node if start <= now else NONE), start
    node, start = _urgent(ready, here, starts)
    if node != NONE and start <= now:
        return node, start
    if starts[awaited, here] <= now:
        return awaited, now
    return NONE, min(start, starts[awaited, here])


@kernel
def _roomiest(node, groups, room):  # type: ignore[no-untyped-def]
    """Where a node goes that fits nowhere."""
    group, allowed, group_device, _, _ = groups
    where = group_device[group[node]]
    if where != NONE:
        return where
    for here in range(len(room)):
        if allowed[group[node], here] and (where == NONE or room[here] > room[where]):
            where = here
    return where


@kernel
def _pin(node, here, groups, needed, room):  # type: ignore[no-untyped-def]
    """A node's group goes where the node does, and takes what it reserves."""
    group, _, group_device, credit, _ = groups
    reserve = needed[3]
    own = group[node]
    if group_device[own] == NONE:
        group_device[own] = here
        if len(reserve) > 0:
            credit[own] = reserve[own]
            room[here] -= reserve[own]


@kernel
def _hold(node, inputs, device, left_to_use, groups, needed, room):  # type: ignore[no-untyped-def]
    """A scheduled node takes its memory, and frees what it was the last to use."""
    group, _, _, credit, unscheduled = groups
    variables, outputs, _, reserve = needed
    offsets, source = inputs[:2]
    own, here = group[node], device[node]
    taken = variables[node] + outputs[node]
    from_credit = max(0.0, min(taken, credit[own]))
    credit[own] -= from_credit
    room[here] -= taken - from_credit
    previous = NONE
    for entry in range(offsets[node], offsets[node + 1]):
        used = source[entry]
        if used == previous:
            continue
        previous = used
        left_to_use[used] -= 1
        if left_to_use[used] > 0:
            continue
        of, back = group[used], 0.0
        if len(reserve) > 0 and unscheduled[of] > 0:
            back = min(outputs[used], reserve[of] - credit[of])
        credit[of] += back
        room[device[used]] += outputs[used] - back
    unscheduled[own] -= 1
    if unscheduled[own] == 0:
        room[here] += credit[own]
        credit[own] = 0.0


@kernel
def _place(duration, group, allowed, inputs, successors, links, needed, capacity, favourite):  # type: ignore[no-untyped-def]
    num_nodes, num_devices = duration.shape
    offsets, children = successors
    waiting, left_to_use = np.zeros(num_nodes, np.int64), np.diff(offsets)
    for child in children:
        waiting[child] += 1
    device = np.full(num_nodes, NONE, np.int64)
    start, end = np.zeros(num_nodes), np.zeros(num_nodes)
    arrival = np.zeros((num_nodes, num_devices))
    sends = np.zeros((num_nodes, num_devices), np.bool_)
    starts = np.full((num_nodes, num_devices), np.inf)
    received = np.full((len(inputs[4]), num_devices), -1.0)
    busy, free, room = np.zeros(num_devices), np.zeros(num_devices), capacity.copy()
    running, last = np.full(num_devices, NONE, np.int64), np.full(num_devices, NONE, np.int64)
    groups = (
        group,
        allowed,
        np.full(len(allowed), NONE, np.int64),
        np.zeros(len(allowed)),
        np.bincount(group, minlength=len(allowed)),
    )
    ready, num_ready = np.empty(num_nodes, np.int64), 0
    is_ready = np.zeros(num_nodes, np.bool_)
    for node in np.flatnonzero(waiting == 0):
        ready[num_ready], is_ready[node] = node, True
        num_ready += 1
    now, num_scheduled, num_forced = 0.0, 0, 0
    while num_scheduled < num_nodes:
        # Ends.
        for here in range(num_devices):
            ended = running[here]
            if ended == NONE or end[ended] > now:
                continue
            running[here] = NONE
            for child in children[offsets[ended] : offsets[ended + 1]]:
                waiting[child] -= 1
                if waiting[child] == 0:
                    ready[num_ready], is_ready[child] = child, True
                    num_ready += 1
                    _reckon(child, inputs, links, device, end, received, busy, arrival, sends)
        # Choose.
        for node in ready[:num_ready]:
            for here in range(num_devices):
                fits = _may_go(node, here, groups, needed, room)
                starts[node, here] = max(arrival[node, here], free[here], now) if fits else np.inf
        best, where, later = NONE, NONE, np.inf
        for here in range(num_devices):
            if running[here] != NONE:
                later = min(later, end[running[here]])
                continue
            awaited = _awaited(here, last, favourite, is_ready, groups, starts)
            node, next_us = _choice(here, ready[:num_ready], starts, awaited, now)
            if node == NONE:
                later = min(later, next_us)
            elif (
                best == NONE
                or node < best
                or (node == best and duration[node, here] < duration[node, where])
            ):
                best, where = node, here
        if best == NONE and later < np.inf:
            now = later
            continue
        if best == NONE:
            num_forced += 1
            best = ready[:num_ready].min()
            where = _roomiest(best, groups, room)
        # Schedule.
        _pin(best, where, groups, needed, room)
        there_us, sent = _send_inputs(best, where, inputs, links, device, end, received, busy)
        device[best] = where
        start[best] = max(there_us, free[where], now)
        end[best] = start[best] + duration[best, where]
        free[where] = end[best]
        running[where] = last[where] = best
        _hold(best, inputs, device, left_to_use, groups, needed, room)
        num_scheduled += 1
        is_ready[best] = False
        num_ready -= 1
        for place in range(num_ready):
            if ready[place] == best:
                ready[place] = ready[num_ready]
                break
        if sent:
            for node in ready[:num_ready]:
                if sends[node].any():
                    _reckon(node, inputs, links, device, end, received, busy, arrival, sends)
    return device, start, num_forced
