"""Justification: a better order for a placement, from a schedule that is built backwards.

A list schedule by upward rank starts the ops first that have the longest path to the end. This path
contains no waits for devices and links. So the gradient of a variable, after which only its sum and
the update come, is computed after the whole backward pass. Then all gradients are sent at once, and
wait for each other.

A backward list schedule shows when each op must start at the latest, waits included. In it, time
runs backwards: an op is ready when its successors are scheduled, and of several ready ops, the one
that ends last in a given schedule is first. The latest starts are the priorities of a new schedule.
The method is from project scheduling (Li and Willis, EJOR 1992; Valls et al., "Justification and
RCPSP: A technique that pays", EJOR 2005). Here transfers are activities too, and their links are
resources.
"""

import numpy as np

from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective, transfer_channels
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.simulator.heaps import (
    Events,
    ReadyOps,
    is_due,
    pop_event,
    pop_ready,
    push_event,
    push_ready,
)
from pesto_cli.kernels import kernel

# The first pass gains most; see docs/search.md.
PASSES = 4
# Kinds of events of `_starts_us`.
ENDS, IS_READY = 0, 1


def justified(simulator: Simulator, schedule: Schedule) -> Schedule:
    """Return the best of a schedule and of `PASSES` justifications, each of the one before it."""
    found = [schedule]
    for _ in range(PASSES):
        late_us = latest_starts_us(simulator.problem, found[-1])
        found.append(simulator.list_schedule(schedule.device, -late_us))
    return min(found, key=lambda each: objective(simulator.problem, each))


def latest_starts_us(problem: Problem, schedule: Schedule) -> FloatArray:
    """Return the start of each op in a backward list schedule, in us, `[num_ops]`.

    Devices, op times and transfer times are those of the given schedule. The result need not be a
    schedule of the execution model: here a link may serve transfers in any order.
    """
    sent = schedule.transfers
    start_us = np.append(schedule.start_us, sent.start_us)
    end_us = np.append(schedule.end_us, sent.end_us)
    channel = problem.num_devices + transfer_channels(problem, schedule)
    resource = np.append(schedule.device, channel)
    duration_us = end_us - start_us
    back_us = _starts_us(duration_us, resource, -end_us, *_waits(problem, schedule))
    late_us: FloatArray = (back_us + duration_us).max(initial=0.0) - back_us - duration_us
    return late_us[: problem.num_ops]


def _waits(problem: Problem, schedule: Schedule) -> tuple[IntArray, IntArray, FloatArray]:
    """Return for each activity those that end before it starts: offsets, activities, delays in us.

    Activities are the ops, followed by the transfers. A delay is the time of a signal between them.
    """
    graph, device, sent = problem.graph, schedule.device, schedule.transfers
    num_ops, num_devices = problem.num_ops, problem.num_devices
    consumers, tensor = graph.consumers, graph.consumer_tensor
    transfers = num_ops + np.arange(len(sent))
    transfer_to = np.full(graph.num_tensors * num_devices, -1, dtype=np.int64)
    transfer_to[sent.tensor * num_devices + sent.dst] = transfers
    producer, number = graph.tensor_producer[tensor], tensor * num_devices + device[consumers]
    is_sent = (device[producer] != device[consumers]) & ~graph.consumer_on_host
    before = np.concatenate(
        (
            np.where(is_sent, transfer_to[number], producer),
            graph.control_edges[:, 0],
            graph.tensor_producer[sent.tensor],
        )
    )
    after = np.concatenate((consumers, graph.control_edges[:, 1], transfers))
    place = np.append(device, np.full(len(sent), -1))
    is_signal = (before < num_ops) & (after < num_ops) & (place[before] != place[after])
    order = np.argsort(after, kind="stable")
    offsets = np.searchsorted(after[order], np.arange(num_ops + len(sent) + 1))
    return offsets, before[order], np.where(is_signal, problem.machine.signal_us, 0.0)[order]


@kernel
def _starts_us(
    duration_us: FloatArray,
    resource: IntArray,
    key: FloatArray,
    offsets: IntArray,
    next_activity: IntArray,
    delay_us: FloatArray,
) -> FloatArray:
    """Return the starts of a list schedule: a free resource starts its ready activity of lowest key.

    A resource runs one activity at a time. duration_us, resource, key: of each activity. An
    activity waits for the ends of all those in whose row of `next_activity` it is, and for the
    delays after these ends.
    """
    number, num_resources = len(duration_us), resource.max() + 1 if len(resource) > 0 else 0
    waits_for, ready_us, start_us = np.zeros(number, np.int64), np.zeros(number), np.zeros(number)
    for activity in next_activity:
        waits_for[activity] += 1
    first = np.zeros(num_resources + 1, np.int64)
    for activity in range(number):
        first[resource[activity] + 1] += 1
    first = first.cumsum()
    sizes = np.zeros(num_resources, np.int64)
    ready = ReadyOps(np.empty(number, np.int64), np.empty(number), first, sizes, key)
    events = Events(np.empty(2 * number), np.empty(2 * number, np.int64), np.zeros(1, np.int64))
    is_busy, is_touched = np.zeros(num_resources, np.bool_), np.zeros(num_resources, np.bool_)
    touched, num_touched = np.empty(num_resources, np.int64), 0
    for activity in range(number):
        if waits_for[activity] == 0:
            push_event(events, 0.0, IS_READY, activity)
    while events.size[0] > 0:
        now = events.time_us[0]
        while is_due(events, now):
            kind, activity = pop_event(events)
            here = resource[activity]
            if kind == IS_READY:
                push_ready(ready, here, activity)
            else:
                is_busy[here] = False
                for entry in range(offsets[activity], offsets[activity + 1]):
                    later = next_activity[entry]
                    ready_us[later] = max(ready_us[later], now + delay_us[entry])
                    waits_for[later] -= 1
                    if waits_for[later] == 0:
                        push_event(events, ready_us[later], IS_READY, later)
            if not is_touched[here]:
                is_touched[here] = True
                touched[num_touched] = here
                num_touched += 1
        for here in touched[:num_touched]:
            is_touched[here] = False
            if not is_busy[here] and ready.size[here] > 0:
                activity = pop_ready(ready, here)
                is_busy[here], start_us[activity] = True, now
                push_event(events, now + duration_us[activity], ENDS, activity)
        num_touched = 0
    return start_us
