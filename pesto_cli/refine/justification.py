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

At the beginning of a step, all variables can be read. If all reads start then, their transfers
occupy the links for a long time, and an urgent tensor waits behind variables that are needed much
later. Therefore other new schedules delay the reads. They fix the order of the ops on each device.
"""

from typing import NamedTuple, Self

import numpy as np

from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem
from pesto_cli.data.schedule import Placement, Schedule, objective, transfer_channels
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
PASSES = 3
# An op that takes at most this long, and follows only such ops, is a read: it can wait.
READ_US = 2.0
# Reads start at the earliest after these shares of their latest starts.
READ_SHARES = (0.0, 0.2, 0.4, 0.8)
# Kinds of events of `_starts_us`.
ENDS, IS_READY = 0, 1


class _Neighbours(NamedTuple):
    """Activities next to each activity, in compressed rows, and the delay in between.

    offsets: `[num_activities + 1]`. activity, delay_us: `[num_entries]`.
    """

    offsets: IntArray
    activity: IntArray
    delay_us: FloatArray

    @classmethod
    def of(cls, count: int, rows: IntArray, activity: IntArray, delay_us: FloatArray) -> Self:
        """Collect the entries of each row; count: the number of activities."""
        order = np.argsort(rows, kind="stable")
        offsets = np.searchsorted(rows[order], np.arange(count + 1))
        return cls(offsets, activity[order], delay_us[order])


class Activities(NamedTuple):
    """The ops of a schedule, followed by its transfers.

    duration_us, end_us, resource: `[num_activities]`; a resource is a device or a channel.
    before, after: the activities that must end before each one, and those that must start after it.
        A delay is the time of a signal.
    """

    duration_us: FloatArray
    end_us: FloatArray
    resource: IntArray
    before: _Neighbours
    after: _Neighbours

    @classmethod
    def of(cls, problem: Problem, schedule: Schedule) -> Self:
        """Return the ops and the transfers of a schedule, with their times."""
        graph, device, sent = problem.graph, schedule.device, schedule.transfers
        num_ops, count = problem.num_ops, problem.num_ops + len(sent)
        transfers = np.arange(num_ops, count)
        transfer_of = np.full(graph.num_tensors * problem.num_devices, -1, dtype=np.int64)
        transfer_of[sent.tensor * problem.num_devices + sent.dst] = transfers
        producer = graph.tensor_producer[graph.consumer_tensor]
        is_sent = (device[producer] != device[graph.consumers]) & ~graph.consumer_on_host
        number = graph.consumer_tensor * problem.num_devices + device[graph.consumers]
        control, sender = graph.control_edges, graph.tensor_producer[sent.tensor]
        first = np.concatenate(
            (np.where(is_sent, transfer_of[number], producer), control[:, 0], sender)
        )
        second = np.concatenate((graph.consumers, control[:, 1], transfers))
        place = np.append(device, np.full(len(sent), -1))
        is_signal = (np.maximum(first, second) < num_ops) & (place[first] != place[second])
        delay_us = np.where(is_signal, problem.machine.signal_us, 0.0)
        start_us = np.append(schedule.start_us, sent.start_us)
        end_us = np.append(schedule.end_us, sent.end_us)
        channel = problem.num_devices + transfer_channels(problem, schedule)
        return cls(
            end_us - start_us,
            end_us,
            np.append(device, channel),
            before=_Neighbours.of(count, second, first, delay_us),
            after=_Neighbours.of(count, first, second, delay_us),
        )

    def latest_starts_us(self) -> FloatArray:
        """Return the starts in a backward list schedule, `[num_activities]`.

        It need not be a schedule of the execution model: a link may serve transfers in any order.
        """
        none_us = np.zeros(len(self.end_us))
        key, before = -self.end_us, self.before
        back_us = _starts_us(self.duration_us, self.resource, key, before, none_us)
        ends_us = back_us + self.duration_us
        latest: FloatArray = ends_us.max(initial=0.0) - ends_us
        return latest


def justified(simulator: Simulator, schedule: Schedule) -> Schedule:
    """Return a schedule, or a better one with the same devices; without transfers, the given one.

    A pass begins with the best schedule of the one before it. The passes end with `PASSES`, or with
    one that is not better.
    """
    problem, best = simulator.problem, schedule
    for _ in range(PASSES if len(schedule.transfers) > 0 else 0):
        activities = Activities.of(problem, best)
        late_us = activities.latest_starts_us()
        orders = (_late_reads(problem, activities, late_us, share) for share in READ_SHARES)
        tried = [simulator.replay(order) for order in orders]
        tried.append(simulator.list_schedule(schedule.device, -late_us[: problem.num_ops]))
        found = min(tried, key=lambda each: objective(problem, each))
        if objective(problem, found) >= objective(problem, best):
            break
        best = found
    return best


def _late_reads(
    problem: Problem, activities: Activities, late_us: FloatArray, share: float
) -> Placement:
    """Return an order with late reads.

    It is that of a list schedule by latest starts, in which links also serve the transfer with the
    lowest latest start first. In it, a read waits for a share of its latest start. Then each read
    is moved to its first transfer, or to the first other op that takes the value.
    """
    duration_us, resource, after = activities.duration_us, activities.resource, activities.after
    reads, release_us = _reads(problem), np.zeros(len(late_us))
    release_us[reads] = share * late_us[reads]
    start_us = _starts_us(duration_us, resource, late_us, after, release_us)
    _delay(start_us, reads, after)
    position = np.argsort(problem.graph.topological_order)
    order = np.lexsort((position, start_us[: problem.num_ops]))
    return Placement(resource[: problem.num_ops], np.argsort(order))


@cached_per_problem
def _reads(problem: Problem) -> IntArray:
    """Return the reads, each after all ops that follow it."""
    graph, is_read = problem.graph, problem.min_duration_us <= READ_US
    for op in graph.topological_order.tolist():
        is_read[op] = is_read[op] and is_read[graph.predecessors[op]].all()
    order = graph.topological_order[::-1]
    reads: IntArray = order[is_read[order]]
    return reads


@kernel
def _delay(start_us: FloatArray, activities: IntArray, after: _Neighbours) -> None:
    """Move each start to the first start of the activities after it, if that is later."""
    for activity in activities:
        latest_us = np.inf
        for entry in range(after.offsets[activity], after.offsets[activity + 1]):
            later_us = start_us[after.activity[entry]] - after.delay_us[entry]
            latest_us = min(latest_us, later_us)
        if latest_us < np.inf:
            start_us[activity] = max(start_us[activity], latest_us)


@kernel
def _starts_us(
    duration_us: FloatArray,
    resource: IntArray,
    key: FloatArray,
    after: _Neighbours,
    release_us: FloatArray,
) -> FloatArray:
    """Return the starts of a list schedule: free resources start ready activities of lowest key.

    A resource runs one activity at a time, none before its release. All arrays are by activity.
    """
    number, num_resources = len(duration_us), resource.max() + 1
    waits_for, ready_us, start_us = np.zeros(number, np.int64), release_us.copy(), np.zeros(number)
    for activity in after.activity:
        waits_for[activity] += 1
    first = np.zeros(num_resources + 1, np.int64)
    for here in resource:
        first[here + 1] += 1
    sizes = np.zeros(num_resources, np.int64)
    ready = ReadyOps(np.empty(number, np.int64), np.empty(number), first.cumsum(), sizes, key)
    events = Events(np.empty(2 * number), np.empty(2 * number, np.int64), np.zeros(1, np.int64))
    is_busy, is_touched = np.zeros(num_resources, np.bool_), np.zeros(num_resources, np.bool_)
    touched, num_touched = np.empty(num_resources, np.int64), 0
    for activity in range(number):
        if waits_for[activity] == 0:
            push_event(events, ready_us[activity], IS_READY, activity)
    while events.size[0] > 0:
        now = events.time_us[0]
        while is_due(events, now):
            kind, activity = pop_event(events)
            here = resource[activity]
            if kind == IS_READY:
                push_ready(ready, here, activity)
            else:
                is_busy[here] = False
                for entry in range(after.offsets[activity], after.offsets[activity + 1]):
                    later = after.activity[entry]
                    ready_us[later] = max(ready_us[later], now + after.delay_us[entry])
                    waits_for[later] -= 1
                    if waits_for[later] == 0:
                        push_event(events, ready_us[later], IS_READY, later)
            if not is_touched[here]:
                is_touched[here], touched[num_touched] = True, here
                num_touched += 1
        for here in touched[:num_touched]:
            is_touched[here] = False
            if not is_busy[here] and ready.size[here] > 0:
                activity = pop_ready(ready, here)
                is_busy[here], start_us[activity] = True, now
                push_event(events, now + duration_us[activity], ENDS, activity)
        num_touched = 0
    return start_us
