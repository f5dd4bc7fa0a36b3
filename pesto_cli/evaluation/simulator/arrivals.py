"""Step 1 of an instant, second part: signals and transfers arrive, and delays end."""

from pesto_cli.evaluation.simulator.ends import release
from pesto_cli.evaluation.simulator.heaps import (
    RECEIVER_DELAY_ENDS,
    SENDER_DELAY_ENDS,
    SIGNAL_ARRIVES,
    TRANSFER_ARRIVES,
    is_due,
    pop_event,
    push_event,
)
from pesto_cli.evaluation.simulator.state import (
    NOBODY,
    RECEIVER,
    SENDER,
    Given,
    SimulationState,
    append,
)
from pesto_cli.kernels import step


@step
def handle_arrivals(given: Given, state: SimulationState, now: float) -> None:
    """Handle all due events: arrivals of signals and transfers, and ends of delays."""
    delayed_by, num_devices = state.transfers.delayed_by, len(state.devices.running)
    while is_due(state.events, now):
        kind, item = pop_event(state.events)
        if kind == SIGNAL_ARRIVES:
            receive_signal(given, state, item // num_devices, item % num_devices)
        elif kind == TRANSFER_ARRIVES:
            if not delay_at_receiver(given, state, item, now):
                receive_tensor(given, state, item)
        elif kind == RECEIVER_DELAY_ENDS and delayed_by[item] == RECEIVER:
            receive_tensor(given, state, item)
        elif kind == SENDER_DELAY_ENDS and delayed_by[item] == SENDER:
            delayed_by[item] = NOBODY
            append(state.leaving, item)


@step
def receive_signal(given: Given, state: SimulationState, op: int, here: int) -> None:
    """A signal of an op arrives: release its successors that wait for control or host memory."""
    graph, device = given.graph, given.device
    first, last = graph.op_tensors[op], graph.op_tensors[op + 1]
    for entry in range(graph.consumer_offsets[first], graph.consumer_offsets[last]):
        if device[graph.consumers[entry]] == here and graph.consumer_on_host[entry]:
            release(given, state, graph.consumers[entry], here)
    for entry in range(graph.control_offsets[op], graph.control_offsets[op + 1]):
        if device[graph.control_successors[entry]] == here:
            release(given, state, graph.control_successors[entry], here)


@step
def delay_at_receiver(given: Given, state: SimulationState, transfer: int, now: float) -> bool:
    """Add the overhead to the op on the receiver; return whether the op delays the tensor."""
    src, here = state.transfers.src[transfer], state.transfers.dst[transfer]
    op, wait_us = state.devices.running[here], given.machine.wait_us[src, here]
    if op < 0:
        return False
    overhead_us, num_bytes = (
        given.machine.transfer_overhead_us,
        given.graph.tensor_bytes[state.transfers.tensor[transfer]],
    )
    state.ops.end_us[op] += overhead_us[1, 0, src, here] + overhead_us[1, 1, src, here] * num_bytes
    if wait_us > 0:
        state.transfers.delayed_by[transfer] = RECEIVER
        append(state.delayed, transfer)
        push_event(state.events, now + wait_us, RECEIVER_DELAY_ENDS, transfer)
    return bool(wait_us > 0)


@step
def receive_tensor(given: Given, state: SimulationState, transfer: int) -> None:
    """Release the consumers of a tensor on its destination device."""
    graph, device = given.graph, given.device
    tensor, here = state.transfers.tensor[transfer], state.transfers.dst[transfer]
    state.transfers.delayed_by[transfer] = NOBODY
    for entry in range(graph.consumer_offsets[tensor], graph.consumer_offsets[tensor + 1]):
        if device[graph.consumers[entry]] == here and not graph.consumer_on_host[entry]:
            release(given, state, graph.consumers[entry], here)
