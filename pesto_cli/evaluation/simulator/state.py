"""What a simulation is given, and its state: arrays that the steps of an instant change."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.evaluation.simulator.columns import KernelGraph, KernelMachine
from pesto_cli.evaluation.simulator.heaps import Events, ReadyOps, push_ready
from pesto_cli.kernels import kernel, step


class Given(NamedTuple):
    """What does not change; see `simulate`."""

    graph: KernelGraph
    machine: KernelMachine
    device: IntArray
    key: FloatArray
    queue: IntArray
    tail_us: FloatArray
    limit_us: float


class OpStates(NamedTuple):
    """`[num_ops]` each.

    awaits: how many tensors and control edges have not arrived yet.
    start_us, end_us: once the op has started.
    rank: its place among the ops of its device, -1 until it has started.
    """

    awaits: IntArray
    start_us: FloatArray
    end_us: FloatArray
    rank: IntArray


class DeviceStates(NamedTuple):
    """`[num_devices]` each.

    running: the op, -1 while the device is idle.
    num_started: how many ops have started.
    left_us: duration of all that have not.
    is_target: used within a step, and False between steps.
    """

    running: IntArray
    num_started: IntArray
    left_us: FloatArray
    is_target: BoolArray


class Sendings(NamedTuple):
    """Tensors that go to another device, `[capacity]` each.

    tensor, src, dst: what goes where.
    start_us, end_us: of the transfer, once it has queued on its link.
    kept_by: the end that keeps the tensor waiting: `NOBODY`, `SENDER` or `RECEIVER`.
    size: `[1]`, how many there are.
    """

    tensor: IntArray
    src: IntArray
    dst: IntArray
    start_us: FloatArray
    end_us: FloatArray
    kept_by: npt.NDArray[np.int8]
    size: IntArray


NOBODY, SENDER, RECEIVER = 0, 1, 2


class NumberList(NamedTuple):
    """A list with room for all that may ever be in it.

    items: `[capacity]`.
    size: `[1]`, how many there are.
    """

    items: IntArray
    size: IntArray


class SimulationState(NamedTuple):
    """All that changes.

    produced: ops that have ended at this instant, and have outputs for other devices.
    kept: sendings that an end keeps waiting, and some that none does any more.
    leaving: sendings that queue on their links at this instant.
    link_free_us: `[num_channels]`, the end of the last transfer.
    """

    ops: OpStates
    devices: DeviceStates
    ready: ReadyOps
    events: Events
    sendings: Sendings
    produced: NumberList
    kept: NumberList
    leaving: NumberList
    link_free_us: FloatArray


@kernel
def initial_state(given: Given, num_awaited: IntArray) -> SimulationState:
    """Before the first instant: no op has started, and those that wait for nothing are ready."""
    graph = given.graph
    num_ops = len(given.device)
    most = len(graph.consumers)  # a sending has at least one consumer of its own
    awaits, times = num_awaited.copy(), np.zeros(num_ops)
    return SimulationState(
        ops=OpStates(awaits, times, times.copy(), np.full(num_ops, -1, np.int64)),
        devices=_idle_devices(given),
        ready=_ready_at_first(given, num_awaited),
        # A signal, or the ends of a transfer and of both waits.
        events=_no_events(3 * most + len(graph.control_successors) + 1),
        sendings=_no_sendings(most),
        produced=_empty_list(num_ops),
        kept=_empty_list(most),
        leaving=_empty_list(most),
        link_free_us=np.zeros(given.machine.channel.max() + 1),
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
    ready = ReadyOps(np.empty(num_ops, np.int64), first, size, given.key)
    if len(given.queue) == 0:
        for op in range(num_ops):
            if num_awaited[op] == 0:
                push_ready(ready, device[op], op)
    return ready


@kernel
def _no_events(capacity: int) -> Events:
    return Events(np.empty(capacity), np.empty(capacity, np.int64), np.zeros(1, np.int64))


@kernel
def _no_sendings(capacity: int) -> Sendings:
    return Sendings(
        tensor=np.empty(capacity, np.int64),
        src=np.empty(capacity, np.int64),
        dst=np.empty(capacity, np.int64),
        start_us=np.empty(capacity),
        end_us=np.empty(capacity),
        kept_by=np.zeros(capacity, np.int8),
        size=np.zeros(1, np.int64),
    )


@kernel
def _empty_list(capacity: int) -> NumberList:
    return NumberList(np.empty(capacity, np.int64), np.zeros(1, np.int64))


@step
def append(rows: NumberList, item: int) -> None:
    """Put an item at the end."""
    rows.items[rows.size[0]] = item
    rows.size[0] += 1


@kernel
def sort(rows: NumberList) -> None:
    """Put the items in ascending order."""
    rows.items[: rows.size[0]].sort()
