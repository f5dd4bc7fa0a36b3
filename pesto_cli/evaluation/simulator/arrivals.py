"""Step 1 of an instant, second part: transfers and signals arrive and start, and delays end."""

from pesto_cli.evaluation.simulator.ends import release
from pesto_cli.evaluation.simulator.heaps import (
    RECEIVER_DELAY_ENDS,
    SENDER_DELAY_ENDS,
    TRANSFER_ARRIVES,
    TRANSFER_STARTS,
    is_due,
    pop_event,
    push_event,
)
from pesto_cli.evaluation.simulator.overheads import start_transfer
from pesto_cli.evaluation.simulator.state import (
    NOBODY,
    RECEIVER,
    SENDER,
    Given,
    SimulationState,
    append,
    is_signal,
    longest_delay_us,
    signal_op,
    sort,
)
from pesto_cli.kernels import step


@step
def handle_arrivals(given: Given, state: SimulationState, now: float) -> None:
    """Handle all due events: arrivals and starts of transfers, and ends of delays."""
    delayed_by = state.transfers.delayed_by
    while is_due(state.events, now):
        kind, item = pop_event(state.events)
        if kind == TRANSFER_ARRIVES:
            follow(state, item)
            if not delay_at_receiver(given, state, item, now):
                receive(given, state, item)
        elif kind == RECEIVER_DELAY_ENDS and delayed_by[item] == RECEIVER:
            receive(given, state, item)
        elif kind == SENDER_DELAY_ENDS and delayed_by[item] == SENDER:
            delayed_by[item] = NOBODY
            append(state.leaving, item)
        elif kind == TRANSFER_STARTS:
            append(state.starting, item)
    if state.starting.size[0] > 0:
        start_transfers(given, state)


@step
def follow(state: SimulationState, transfer: int) -> None:
    """Add the arrival of the transfer that follows on the link."""
    following = state.transfers.next_on_link[transfer]
    if following >= 0:
        push_event(state.events, state.transfers.end_us[following], TRANSFER_ARRIVES, following)


@step
def start_transfers(given: Given, state: SimulationState) -> None:
    """Start the transfers that are due, in the order of their production."""
    sort(state.starting)
    for row in range(state.starting.size[0]):
        start_transfer(given, state, state.starting.items[row])
    state.starting.size[0] = 0


@step
def receive(given: Given, state: SimulationState, transfer: int) -> None:
    """Release the ops that a tensor or signal was sent to."""
    tensor, here = state.transfers.tensor[transfer], state.transfers.dst[transfer]
    state.transfers.delayed_by[transfer] = NOBODY
    if is_signal(given, tensor):
        receive_signal(given, state, signal_op(given, tensor), here)
    else:
        receive_tensor(given, state, tensor, here)


@step
def receive_signal(given: Given, state: SimulationState, op: int, here: int) -> None:
    """Release the successors of an op on a device that wait for control or host memory."""
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
    """Delay a tensor that arrives, if its receiver computes; return whether it does."""
    here, wait_us = state.transfers.dst[transfer], 0.0
    if given.machine.has_delays and state.devices.running[here] >= 0:
        wait_us = longest_delay_us(given, state, transfer, 1)
    if wait_us > 0:
        state.transfers.delayed_by[transfer] = RECEIVER
        append(state.delayed, transfer)
        push_event(state.events, now + wait_us, RECEIVER_DELAY_ENDS, transfer)
    return bool(wait_us > 0)


@step
def receive_tensor(given: Given, state: SimulationState, tensor: int, here: int) -> None:
    """Release the consumers of a tensor on a device."""
    graph, device = given.graph, given.device
    for entry in range(graph.consumer_offsets[tensor], graph.consumer_offsets[tensor + 1]):
        if device[graph.consumers[entry]] == here and not graph.consumer_on_host[entry]:
            release(given, state, graph.consumers[entry], here)
