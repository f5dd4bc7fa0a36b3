"""The event-driven simulator: what a placement and an order take, by the execution model.

At each instant all ends and arrivals are handled first. Then devices are served in index order: an
idle device starts its ready op of highest priority, ties to the lowest op index. Zero-time ops end
at the instant at which they start, so this repeats until nothing more happens; only then the
tensors produced at this instant queue on their links, by (producer, tensor, destination). As a
link is first come first served, a transfer's times are known when it queues. The op that runs on
the sender by then, and the one on the receiver when it arrives, ends later by what its device
loses (`CommModel`). Where the link says that computing ends keep transfers waiting, a tensor queues
on the link once its device is idle or the wait is over, and is there for its consumers likewise.
"""

from typing import Any

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule, Transfers
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.memory import peak_bytes
from pesto_cli.evaluation.simulator.columns import KernelGraph, KernelMachine, num_awaited
from pesto_cli.kernels import kernel


class Simulator:
    """A problem laid out for the kernel; use one for many simulations of the same problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.kernel_graph = KernelGraph.of(problem)
        self.kernel_machine = KernelMachine.of(problem.machine)
        self.kernel_waits = num_awaited(problem)
        self.kernel_first = problem.is_given

    def list_schedule(self, device: IntArray, priority: FloatArray) -> Schedule:
        """Dispatch ready ops by priority, highest first.

        Args:
            device: `[num_ops]`, a device that may run each op.
            priority: `[num_ops]`.
        """
        return self._schedule(device, -priority, strict=False)

    def makespan_us(self, device: IntArray, priority: FloatArray) -> float:
        """Makespan of `list_schedule`, without the rest of the schedule."""
        end_us = self._run(device, -priority, strict=False)[1]
        return float(end_us.max(initial=0.0))

    def replay(self, placement: Placement) -> Schedule:
        """Run every device strictly in rank order.

        Raises:
            BadInputError: the order contradicts precedence, so that some device waits for ever.
        """
        rank = placement.rank.astype(np.float64)
        return self._schedule(placement.device, rank, strict=True)

    def upward_rank(self, device: IntArray | None = None) -> FloatArray:
        """`[num_ops]`: longest path in us from an op's start to the end of the graph.

        With a placement, durations on its devices and transfers without queueing count; without,
        durations on the fastest device alone (HEFT's upward rank: Topcuoglu et al., 2002).
        """
        duration_us, order = self.problem.min_duration_us, self.problem.graph.topological_order
        if device is None:
            device = np.zeros(self.problem.num_ops, dtype=np.int64)
        else:
            duration_us = self.problem.duration_us[np.arange(self.problem.num_ops), device]
        rank: FloatArray = longest_tails(
            order, duration_us, self.kernel_graph, self.kernel_machine, device
        )
        return rank

    def _run(self, device: IntArray, key: FloatArray, *, strict: bool) -> tuple[Any, ...]:
        """Ops of lower key first, but those of `kernel_first` before all."""
        device = np.ascontiguousarray(device, dtype=np.int64)
        key = np.where(self.kernel_first, -np.inf, key)
        # Every device's ops in rank order, one device after the other.
        queue = np.lexsort((key, device)) if strict else np.empty(0, dtype=np.int64)
        result: tuple[Any, ...] = simulate(
            self.kernel_graph,
            self.kernel_machine,
            self.kernel_waits,
            device,
            key,
            queue,
            key,
            np.inf,
        )
        return result

    def _schedule(self, device: IntArray, key: FloatArray, *, strict: bool) -> Schedule:
        problem = self.problem
        start_us, end_us, rank, tensor, dst, sent_us, arrived_us = self._run(
            device, key, strict=strict
        )
        if (rank < 0).any():
            raise BadInputError(self._deadlock(device, key, rank))
        transfers = Transfers(tensor, dst, sent_us, arrived_us)
        peak = peak_bytes(problem, device, start_us, end_us, transfers)
        return Schedule(np.asarray(device), rank, start_us, end_us, transfers, peak)

    def _deadlock(self, device: IntArray, key: FloatArray, rank: IntArray) -> str:
        """Name a pair of ops on one device that the order puts the wrong way round."""
        graph = self.problem.graph
        ahead: dict[int, int] = {}
        for op in np.lexsort((key, device)).tolist():
            if rank[op] < 0:
                ahead.setdefault(int(device[op]), op)
        blocked = graph.names[next(iter(ahead.values()))]
        return (
            f"the placement's order contradicts the graph: op {blocked!r} is next on its device, "
            "but what it needs is ordered behind it or waits for it in turn; every op must come "
            "after its predecessors: solve the profile again."
        )


def list_schedule(problem: Problem, device: IntArray, priority: FloatArray) -> Schedule:
    """`Simulator.list_schedule` for a single use."""
    return Simulator(problem).list_schedule(device, priority)


def replay(problem: Problem, placement: Placement) -> Schedule:
    """`Simulator.replay` for a single use."""
    return Simulator(problem).replay(placement)


def upward_rank(problem: Problem, device: IntArray | None = None) -> FloatArray:
    """`Simulator.upward_rank` for a single use."""
    return Simulator(problem).upward_rank(device)


# What happens to a transfer.
ARRIVED, SENDER_WAITED, RECEIVER_WAITED = 0, 1, 2


@kernel
def _push_event(times, codes, size, time, code):  # type: ignore[no-untyped-def]
    """Binary min-heap of (time, code); events of one instant may leave in any order."""
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if times[parent] <= time:
            break
        times[child], codes[child] = times[parent], codes[parent]
        child = parent
    times[child], codes[child] = time, code
    return size + 1


@kernel
def _pop_event(times, codes, size):  # type: ignore[no-untyped-def]
    code = codes[0]
    size -= 1
    time, last = times[size], codes[size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[parent], codes[parent] = times[child], codes[child]
        parent = child
    times[parent], codes[parent] = time, last
    return code, size


@kernel
def _transfer_us(machine, src, dst, num_bytes):  # type: ignore[no-untyped-def]
    sent_us = machine.latency_us[src, dst] + machine.us_per_byte[src, dst] * num_bytes
    return max(machine.min_us[src, dst], sent_us)


@kernel
def _release(op, here, waiting, strict, ready, base, num_ready, key):  # type: ignore[no-untyped-def]
    """One thing that an op waits for is there; after the last, it is ready.

    Ready ops of a device are a binary min-heap by (key, op).
    """
    waiting[op] -= 1
    if waiting[op] > 0 or strict:
        return
    first, child = base[here], num_ready[here]
    while child > 0:
        parent = (child - 1) >> 1
        above = ready[first + parent]
        if key[above] < key[op] or (key[above] == key[op] and above < op):
            break
        ready[first + child] = above
        child = parent
    ready[first + child] = op
    num_ready[here] += 1


@kernel
def _pop_ready(ready, first, size, key):  # type: ignore[no-untyped-def]
    top = ready[first]
    size -= 1
    last = ready[first + size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        down = ready[first + child]
        if child + 1 < size:
            right = ready[first + child + 1]
            if key[right] < key[down] or (key[right] == key[down] and right < down):
                child, down = child + 1, right
        if key[down] > key[last] or (key[down] == key[last] and down > last):
            break
        ready[first + parent] = down
        parent = child
    ready[first + parent] = last
    return top


@kernel
def simulate(graph, machine, waits, device, key, queue, tail, limit_us):  # type: ignore[no-untyped-def]
    """Run one schedule; an op that never starts keeps rank -1.

    A device takes its ready op of lowest key, ties to the lowest index. With a queue (every
    device's ops in order, one device after the other), it waits for the next op of its part.

    Given up as soon as the makespan must exceed the limit: an op starts less than its tail before
    it (at most the time from the op's start to the end of the graph), or less than what its device
    has left to do. What has not started by then keeps rank -1.
    """
    duration, op_tensors, num_bytes, offsets, consumers, on_host, after, control = graph
    channel, lost, wait, signal_us = (
        machine.channel,
        machine.lost_us,
        machine.wait_us,
        machine.signal_us,
    )
    num_ops, num_devices = duration.shape
    strict = len(queue) > 0
    waiting = waits.copy()
    base = np.zeros(num_devices + 1, np.int64)
    left = np.zeros(num_devices)
    for op in range(num_ops):
        base[device[op] + 1] += 1
        left[device[op]] += duration[op, device[op]]
    for here in range(num_devices):
        base[here + 1] += base[here]
    start, end = np.zeros(num_ops), np.zeros(num_ops)
    rank = np.full(num_ops, -1, np.int64)
    # A transfer has at least one consumer of its own.
    tensor_of, dst_of = np.empty(len(consumers), np.int64), np.empty(len(consumers), np.int64)
    src_of = np.empty(len(consumers), np.int64)
    sent, arrived = np.empty(len(consumers)), np.empty(len(consumers))
    num_sent, num_rows = 0, max(1, len(consumers))
    # Transfers that queue at this instant, those that an end keeps waiting, and which end that is.
    leaving, num_leaving = np.empty(len(consumers), np.int64), 0
    held, num_held = np.empty(len(consumers), np.int64), 0
    at_end = np.zeros(len(consumers), np.int8)
    # Codes: what happens * num_rows + row of a transfer; -1 - (op * num_devices + destination) of
    # a signal.
    capacity = 3 * len(consumers) + len(control) + 1
    times, codes, num_events = np.empty(capacity), np.empty(capacity, np.int64), 0
    ready, num_ready = np.empty(num_ops, np.int64), np.zeros(num_devices, np.int64)
    running = np.full(num_devices, -1, np.int64)
    started = np.zeros(num_devices, np.int64)
    link_free = np.zeros(channel.max() + 1)
    produced, num_produced = np.empty(num_ops, np.int64), 0
    wanted = np.zeros(num_devices, np.bool_)

    for op in range(num_ops):
        if waiting[op] == 0:
            waiting[op] = 1
            _release(op, device[op], waiting, strict, ready, base, num_ready, key)
    now, exceeded = 0.0, False
    while not exceeded:
        again = True
        while again:
            again = False
            # Ends.
            for here in range(num_devices):
                op = running[here]
                if op < 0 or end[op] > now:
                    continue
                running[here] = -1
                crosses = signals = False
                for tensor in range(op_tensors[op], op_tensors[op + 1]):
                    for entry in range(offsets[tensor], offsets[tensor + 1]):
                        consumer = consumers[entry]
                        where = device[consumer]
                        if where == here:
                            _release(
                                consumer,
                                here,
                                waiting,
                                strict,
                                ready,
                                base,
                                num_ready,
                                key,
                            )
                        elif on_host[entry]:
                            signals = wanted[where] = True
                        else:
                            crosses = True
                for entry in range(after[op], after[op + 1]):
                    consumer = control[entry]
                    where = device[consumer]
                    if where == here:
                        _release(
                            consumer,
                            here,
                            waiting,
                            strict,
                            ready,
                            base,
                            num_ready,
                            key,
                        )
                    else:
                        signals = wanted[where] = True
                if signals:
                    for where in range(num_devices):
                        if wanted[where]:
                            wanted[where] = False
                            code = -1 - (op * num_devices + where)
                            num_events = _push_event(
                                times, codes, num_events, now + signal_us, code
                            )
                if crosses:
                    produced[num_produced] = op
                    num_produced += 1
            # Arrivals, and ends of waits.
            while num_events > 0 and times[0] <= now:
                code, num_events = _pop_event(times, codes, num_events)
                if code >= 0:
                    what, row = divmod(code, num_rows)
                    here, tensor = dst_of[row], tensor_of[row]
                    if what == SENDER_WAITED:
                        if at_end[row] == SENDER_WAITED:
                            at_end[row] = 0
                            leaving[num_leaving] = row
                            num_leaving += 1
                        continue
                    if what == ARRIVED and running[here] >= 0:
                        src = src_of[row]
                        per_byte = lost[1, 1, src, here]
                        end[running[here]] += lost[1, 0, src, here] + per_byte * num_bytes[tensor]
                        if wait[src, here] > 0:
                            at_end[row] = RECEIVER_WAITED
                            held[num_held] = row
                            num_held += 1
                            over = now + wait[src, here]
                            code = RECEIVER_WAITED * num_rows + row
                            num_events = _push_event(times, codes, num_events, over, code)
                            continue
                    if what == RECEIVER_WAITED and at_end[row] != RECEIVER_WAITED:
                        continue
                    at_end[row] = 0
                    first, last, is_signal = tensor, tensor + 1, False
                else:
                    op, here = divmod(-1 - code, num_devices)
                    first, last, is_signal = op_tensors[op], op_tensors[op + 1], True
                for entry in range(offsets[first], offsets[last]):
                    consumer = consumers[entry]
                    if device[consumer] == here and on_host[entry] == is_signal:
                        _release(
                            consumer,
                            here,
                            waiting,
                            strict,
                            ready,
                            base,
                            num_ready,
                            key,
                        )
                if is_signal:
                    for entry in range(after[op], after[op + 1]):
                        consumer = control[entry]
                        if device[consumer] == here:
                            _release(
                                consumer,
                                here,
                                waiting,
                                strict,
                                ready,
                                base,
                                num_ready,
                                key,
                            )
            # Dispatch.
            for here in range(num_devices):
                if running[here] >= 0:
                    continue
                if strict:
                    place = base[here] + started[here]
                    if place == base[here + 1] or waiting[queue[place]] > 0:
                        continue
                    op = queue[place]
                elif num_ready[here] > 0:
                    op = _pop_ready(ready, base[here], num_ready[here], key)
                    num_ready[here] -= 1
                else:
                    continue
                exceeded |= now + max(tail[op], left[here]) > limit_us
                left[here] -= duration[op, here]
                running[here] = op
                rank[op] = started[here]
                started[here] += 1
                start[op] = now
                end[op] = now + duration[op, here]
                again |= end[op] <= now
            if again or num_produced + num_held + num_leaving == 0:
                continue
            # An idle receiver keeps nothing waiting; the event for the end of a wait is void then.
            for row in held[:num_held]:
                if at_end[row] == RECEIVER_WAITED and running[dst_of[row]] < 0:
                    code = RECEIVER_WAITED * num_rows + row
                    num_events = _push_event(times, codes, num_events, now, code)
            if num_events > 0 and times[0] <= now:
                again = True
                continue
            # New transfers.
            if num_produced > 1:
                produced[:num_produced].sort()
            for op in produced[:num_produced]:
                here = device[op]
                for tensor in range(op_tensors[op], op_tensors[op + 1]):
                    for entry in range(offsets[tensor], offsets[tensor + 1]):
                        where = device[consumers[entry]]
                        if where != here and not on_host[entry]:
                            wanted[where] = True
                    for where in range(num_devices):
                        if not wanted[where]:
                            continue
                        wanted[where] = False
                        tensor_of[num_sent], dst_of[num_sent] = tensor, where
                        src_of[num_sent] = here
                        if running[here] >= 0 and wait[here, where] > 0:
                            at_end[num_sent] = SENDER_WAITED
                            held[num_held] = num_sent
                            num_held += 1
                            over = now + wait[here, where]
                            code = SENDER_WAITED * num_rows + num_sent
                            num_events = _push_event(times, codes, num_events, over, code)
                        else:
                            leaving[num_leaving] = num_sent
                            num_leaving += 1
                        num_sent += 1
            num_produced = 0
            # Nor does an idle sender.
            still = 0
            for row in held[:num_held]:
                if at_end[row] == SENDER_WAITED and running[src_of[row]] < 0:
                    at_end[row] = 0
                    leaving[num_leaving] = row
                    num_leaving += 1
                elif at_end[row] != 0:
                    held[still] = row
                    still += 1
            num_held = still
            # Queue on the links.
            if num_leaving > 1:
                leaving[:num_leaving].sort()
            for row in leaving[:num_leaving]:
                here, where, tensor = src_of[row], dst_of[row], tensor_of[row]
                link = channel[here, where]
                sent[row] = max(now, link_free[link])
                arrived[row] = sent[row] + _transfer_us(machine, here, where, num_bytes[tensor])
                link_free[link] = arrived[row]
                if running[here] >= 0:
                    per_byte = lost[0, 1, here, where]
                    end[running[here]] += lost[0, 0, here, where] + per_byte * num_bytes[tensor]
                num_events = _push_event(times, codes, num_events, arrived[row], row)
            num_leaving = 0
            again = num_events > 0 and times[0] <= now
        # Advance to the next end or arrival.
        later = times[0] if num_events > 0 else np.inf
        for here in range(num_devices):
            if running[here] >= 0:
                later = min(later, end[running[here]])
        if later == np.inf:
            break
        now = later
    return (
        start,
        end,
        rank,
        tensor_of[:num_sent].copy(),
        dst_of[:num_sent].copy(),
        sent[:num_sent].copy(),
        arrived[:num_sent].copy(),
    )


@kernel
def longest_tails(order, duration, graph, machine, device):  # type: ignore[no-untyped-def]
    """`[num_ops]`: own duration and the longest way to the end behind it."""
    _, op_tensors, num_bytes, offsets, consumers, on_host, after, control = graph
    signal_us = machine.signal_us
    tail = np.zeros(len(order))
    for op in order[::-1]:
        here, longest = device[op], 0.0
        for tensor in range(op_tensors[op], op_tensors[op + 1]):
            for entry in range(offsets[tensor], offsets[tensor + 1]):
                where = device[consumers[entry]]
                delay = 0.0
                if where != here and on_host[entry]:
                    delay = signal_us
                elif where != here:
                    delay = _transfer_us(machine, here, where, num_bytes[tensor])
                longest = max(longest, delay + tail[consumers[entry]])
        for entry in range(after[op], after[op + 1]):
            delay = 0.0 if device[control[entry]] == here else signal_us
            longest = max(longest, delay + tail[control[entry]])
        tail[op] = duration[op] + longest
    return tail


@kernel
def transfers_us(graph, machine, device):  # type: ignore[no-untyped-def]
    """How long all transfers of a placement take together, in whatever order."""
    _, op_tensors, num_bytes, offsets, consumers, on_host, _, _ = graph
    last_sent = np.full(len(machine.channel), -1, np.int64)  # to each device
    total = 0.0
    for op in range(len(device)):
        here = device[op]
        for tensor in range(op_tensors[op], op_tensors[op + 1]):
            for entry in range(offsets[tensor], offsets[tensor + 1]):
                where = device[consumers[entry]]
                if where == here or on_host[entry] or last_sent[where] == tensor:
                    continue
                last_sent[where] = tensor
                total += _transfer_us(machine, here, where, num_bytes[tensor])
    return total
