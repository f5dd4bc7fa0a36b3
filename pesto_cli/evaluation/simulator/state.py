"""The input and the state of a simulation; the steps of an instant change arrays of the state."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.evaluation.simulator.columns import KernelGraph, KernelMachine
from pesto_cli.evaluation.simulator.heaps import Events, ReadyOps, push_ready
from pesto_cli.kernels import kernel, step


class Given(NamedTuple):
    """The input of a simulation, which does not change; see `simulate`."""

    graph: KernelGraph
    machine: KernelMachine
    device: IntArray
    key: FloatArray
    queue: IntArray
    tail_us: FloatArray
    limit_us: float


class OpStates(NamedTuple):
    """The state of every op, `[num_ops]` each.

    awaits: number of tensors and control edges that have not arrived yet.
    start_us, end_us: valid after the op has started.
    rank: position of the op on its device; -1 until it has started.
    """

    awaits: IntArray
    start_us: FloatArray
    end_us: FloatArray
    rank: IntArray


class DeviceStates(NamedTuple):
    """The state of every device, `[num_devices]` each.

    running: the op that runs; -1 while the device is idle.
    num_started: number of ops that have started.
    left_us: sum of durations of the ops that have not started.
    num_peers: number of other devices of the same kind and host beside which the running op runs.
    num_running: number of devices of each peer group that run ops; used within a step.
    is_target: marks of destination devices; used within a step, and False between steps.
    """

    running: IntArray
    num_started: IntArray
    left_us: FloatArray
    num_peers: IntArray
    num_running: IntArray
    is_target: BoolArray


class TransferStates(NamedTuple):
    """The state of every transfer and signal, `[capacity]` each.

    tensor, src, dst: tensor and devices. A signal is a transfer without a link, and the number of
        its tensor is `num_tensors` plus the op that sends it.
    start_us, end_us: times on the link; valid after the transfer has queued.
    next_on_link: the transfer that follows on the link; -1 for none, valid after queueing.
    delayed_by: the endpoint that delays the tensor now: `NOBODY`, `SENDER` or `RECEIVER`.
    size: `[1]`, number of transfers.
    """

    tensor: IntArray
    src: IntArray
    dst: IntArray
    start_us: FloatArray
    end_us: FloatArray
    next_on_link: IntArray
    delayed_by: npt.NDArray[np.int8]
    size: IntArray


NOBODY, SENDER, RECEIVER = 0, 1, 2


class NumberList(NamedTuple):
    """A list of fixed capacity.

    items: `[capacity]`.
    size: `[1]`, number of items.
    """

    items: IntArray
    size: IntArray


class SimulationState(NamedTuple):
    """The state of a simulation.

    ops, devices, ready, events, transfers: see their classes.
    num_signalling: `[1]`, the number of ops that have sent signals.
    produced: ops that have ended at this instant and have successors on other devices: `2 * op`, or
        `2 * op + 1` if the op sends signals.
    delayed: transfers that an endpoint delays, and some whose delay has ended.
    leaving: transfers that queue on their links at this instant.
    starting: transfers that start on their links at this instant.
    uncharged: endpoints of started transfers whose overhead no op has: `2 * transfer + side`, where
        the side is 0 for the sender and 1 for the receiver; and some of transfers that have ended.
    link_free_us: `[num_channels]`, the end of the last queued transfer.
    link_last: `[num_channels]`, the last queued transfer; -1 for none.
    """

    ops: OpStates
    devices: DeviceStates
    ready: ReadyOps
    events: Events
    transfers: TransferStates
    num_signalling: IntArray
    produced: NumberList
    delayed: NumberList
    leaving: NumberList
    starting: NumberList
    uncharged: NumberList
    link_free_us: FloatArray
    link_last: IntArray


@kernel
def initial_state(given: Given, num_awaited: IntArray) -> SimulationState:
    """Return the state before the first instant: ops without predecessors are ready."""
    graph, machine = given.graph, given.machine
    num_ops = len(given.device)
    # Each transfer and signal has at least one consumer or control successor of its own.
    most = len(graph.consumers) + len(graph.control_successors)
    awaits, times = num_awaited.copy(), np.zeros(num_ops)
    return SimulationState(
        ops=OpStates(awaits, times, times.copy(), np.full(num_ops, -1, np.int64)),
        devices=_idle_devices(given),
        ready=_ready_at_first(given, num_awaited),
        # For each transfer its end, and its start and the ends of both delays if there are any.
        events=_no_events((1 + machine.has_overheads + 2 * machine.has_delays) * most + 1),
        transfers=_no_transfers(most),
        num_signalling=np.zeros(1, np.int64),
        produced=_empty_list(num_ops),
        delayed=_empty_list(most if machine.has_delays else 0),
        leaving=_empty_list(most),
        starting=_empty_list(most if machine.has_overheads else 0),
        uncharged=_empty_list(2 * most if machine.has_overheads else 0),
        link_free_us=np.zeros(machine.channel.max() + 1),
        link_last=np.full(machine.channel.max() + 1, -1, np.int64),
    )


@kernel
def _idle_devices(given: Given) -> DeviceStates:
    device, duration_us = given.device, given.graph.duration_us
    num_devices = duration_us.shape[1]
    left_us = np.zeros(num_devices)
    for op in range(len(device)):
        left_us[device[op]] += duration_us[op, device[op]]
    return DeviceStates(
        running=np.full(num_devices, -1, np.int64),
        num_started=np.zeros(num_devices, np.int64),
        left_us=left_us,
        num_peers=np.zeros(num_devices, np.int64),
        num_running=np.zeros(num_devices, np.int64),
        is_target=np.zeros(num_devices, np.bool_),
    )


@kernel
def _ready_at_first(given: Given, num_awaited: IntArray) -> ReadyOps:
    device, (num_ops, num_devices) = given.device, given.graph.duration_us.shape
    first, size = np.zeros(num_devices + 1, np.int64), np.zeros(num_devices, np.int64)
    for op in range(num_ops):
        first[device[op] + 1] += 1
    for here in range(num_devices):
        first[here + 1] += first[here]
    ready = ReadyOps(np.empty(num_ops, np.int64), np.empty(num_ops), first, size, given.key)
    if len(given.queue) == 0:
        for op in range(num_ops):
            if num_awaited[op] == 0:
                push_ready(ready, device[op], op)
    return ready


@kernel
def _no_events(capacity: int) -> Events:
    return Events(np.empty(capacity), np.empty(capacity, np.int64), np.zeros(1, np.int64))


@kernel
def _no_transfers(capacity: int) -> TransferStates:
    return TransferStates(
        tensor=np.empty(capacity, np.int64),
        src=np.empty(capacity, np.int64),
        dst=np.empty(capacity, np.int64),
        start_us=np.empty(capacity),
        end_us=np.empty(capacity),
        next_on_link=np.empty(capacity, np.int64),
        delayed_by=np.zeros(capacity, np.int8),
        size=np.zeros(1, np.int64),
    )


@kernel
def _empty_list(capacity: int) -> NumberList:
    return NumberList(np.empty(capacity, np.int64), np.zeros(1, np.int64))


@step
def is_signal(given: Given, tensor: int) -> bool:
    """Return whether the tensor of a transfer stands for a signal."""
    return bool(tensor >= len(given.graph.tensor_bytes))


@step
def signal_op(given: Given, tensor: int) -> int:
    """Return the op that sends a signal."""
    op: int = tensor - len(given.graph.tensor_bytes)
    return op


@step
def longest_delay_us(given: Given, state: SimulationState, transfer: int, side: int) -> float:
    """Return the longest delay of a transfer by its sender (side 0) or receiver (side 1)."""
    transfers, factor = state.transfers, given.graph.delay_factor
    us: float = given.machine.wait_us[transfers.src[transfer], transfers.dst[transfer]]
    if us > 0 and factor.shape[1] > 0:
        us *= factor[side, transfers.tensor[transfer]]
    return us


@step
def append(rows: NumberList, item: int) -> None:
    """Append an item."""
    rows.items[rows.size[0]] = item
    rows.size[0] += 1


@kernel
def sort(rows: NumberList) -> None:
    """Sort the items in ascending order."""
    rows.items[: rows.size[0]].sort()
