"""Steps 4 and 5 of an instant: delays by idle endpoints end, and tensors and signals are sent."""

from pesto_cli.evaluation.simulator.heaps import (
    RECEIVER_DELAY_ENDS,
    SENDER_DELAY_ENDS,
    TRANSFER_ARRIVES,
    TRANSFER_STARTS,
    push_event,
)
from pesto_cli.evaluation.simulator.overheads import start_transfer
from pesto_cli.evaluation.simulator.paths import transfer_us
from pesto_cli.evaluation.simulator.state import (
    NOBODY,
    RECEIVER,
    SENDER,
    Given,
    SimulationState,
    append,
    is_signal,
    longest_delay_us,
    sort,
)
from pesto_cli.kernels import step


@step
def end_delays_by_idle_receivers(state: SimulationState, now: float) -> None:
    """Step 4: end the delays by idle receivers; the events for their later ends are ignored."""
    transfers, delayed, running = state.transfers, state.delayed, state.devices.running
    for row in range(delayed.size[0]):
        transfer = delayed.items[row]
        if transfers.delayed_by[transfer] == RECEIVER and running[transfers.dst[transfer]] < 0:
            push_event(state.events, now, RECEIVER_DELAY_ENDS, transfer)


@step
def send_outputs(given: Given, state: SimulationState, now: float) -> None:
    """Step 5: send the tensors and signals of the ops that ended, by producer and tensor."""
    produced, op_tensors = state.produced, given.graph.op_tensors
    if produced.size[0] > 1:
        sort(produced)
    for row in range(produced.size[0]):
        op = produced.items[row] >> 1
        for tensor in range(op_tensors[op], op_tensors[op + 1]):
            send_tensor(given, state, tensor, given.device[op], now)
        if produced.items[row] & 1:
            send_signal(given, state, op, given.device[op], now)
            state.num_signalling[0] += 1
    produced.size[0] = 0


@step
def send_tensor(given: Given, state: SimulationState, tensor: int, here: int, now: float) -> None:
    """Send a tensor to every other device where a consumer takes its data."""
    graph, is_target = given.graph, state.devices.is_target
    for entry in range(graph.consumer_offsets[tensor], graph.consumer_offsets[tensor + 1]):
        where = given.device[graph.consumers[entry]]
        if where != here and not graph.consumer_on_host[entry]:
            is_target[where] = True
    send_to_marked(given, state, tensor, here, now)


@step
def send_signal(given: Given, state: SimulationState, op: int, here: int, now: float) -> None:
    """Signal the end of an op to other devices with control successors or uses in host memory."""
    graph, is_target = given.graph, state.devices.is_target
    first, last = graph.op_tensors[op], graph.op_tensors[op + 1]
    for entry in range(graph.consumer_offsets[first], graph.consumer_offsets[last]):
        where = given.device[graph.consumers[entry]]
        if where != here and graph.consumer_on_host[entry]:
            is_target[where] = True
    for entry in range(graph.control_offsets[op], graph.control_offsets[op + 1]):
        where = given.device[graph.control_successors[entry]]
        if where != here:
            is_target[where] = True
    send_to_marked(given, state, len(graph.tensor_bytes) + op, here, now)


@step
def send_to_marked(
    given: Given, state: SimulationState, tensor: int, here: int, now: float
) -> None:
    """Send a tensor or signal to every marked device, and clear the marks."""
    is_target = state.devices.is_target
    for where in range(len(is_target)):
        if is_target[where]:
            is_target[where] = False
            send(given, state, tensor, here, where, now)


@step
def send(given: Given, state: SimulationState, tensor: int, src: int, dst: int, now: float) -> None:
    """Create a transfer; it queues at this instant unless a sender that computes delays it."""
    transfers, transfer, wait_us = state.transfers, state.transfers.size[0], 0.0
    transfers.size[0] += 1
    transfers.tensor[transfer], transfers.src[transfer], transfers.dst[transfer] = tensor, src, dst
    if given.machine.has_delays and state.devices.running[src] >= 0:
        wait_us = longest_delay_us(given, state, transfer, 0)
    if wait_us > 0:
        transfers.delayed_by[transfer] = SENDER
        append(state.delayed, transfer)
        push_event(state.events, now + wait_us, SENDER_DELAY_ENDS, transfer)
    else:
        append(state.leaving, transfer)


@step
def end_delays_by_idle_senders(state: SimulationState) -> None:
    """Step 5: end the delays by idle senders; remove transfers without delay from the list."""
    transfers, delayed, running = state.transfers, state.delayed, state.devices.running
    num_left = 0
    for row in range(delayed.size[0]):
        transfer = delayed.items[row]
        if transfers.delayed_by[transfer] == SENDER and running[transfers.src[transfer]] < 0:
            transfers.delayed_by[transfer] = NOBODY
            append(state.leaving, transfer)
        elif transfers.delayed_by[transfer] != NOBODY:
            delayed.items[num_left] = transfer
            num_left += 1
    delayed.size[0] = num_left


@step
def queue_on_links(given: Given, state: SimulationState, now: float) -> None:
    """Step 5: queue tensors on their links, by producer, tensor and destination; send signals."""
    leaving = state.leaving
    if leaving.size[0] > 1:
        sort(leaving)
    for row in range(leaving.size[0]):
        transfer = leaving.items[row]
        queue_on_link(given, state, transfer, now)
        if given.machine.has_overheads:
            start_or_schedule(given, state, transfer, now)
    leaving.size[0] = 0


@step
def queue_on_link(given: Given, state: SimulationState, transfer: int, now: float) -> None:
    """Set the times of a transfer; a link serves transfers in the order of queueing.

    Of the transfers on a link, only the first one has an event: its arrival adds that of the next.
    """
    transfers, machine, free_us = state.transfers, given.machine, state.link_free_us
    tensor, src, dst = transfers.tensor[transfer], transfers.src[transfer], transfers.dst[transfer]
    start_us, before = now, -1
    if is_signal(given, tensor):
        end_us = now + machine.signal_us
    else:
        link, num_bytes = machine.channel[src, dst], given.graph.tensor_bytes[tensor]
        if free_us[link] > now:
            start_us, before = free_us[link], state.link_last[link]
        free_us[link] = end_us = start_us + transfer_us(machine, src, dst, num_bytes)
        state.link_last[link] = transfer
    transfers.start_us[transfer], transfers.end_us[transfer] = start_us, end_us
    transfers.next_on_link[transfer] = -1
    if before >= 0:
        transfers.next_on_link[before] = transfer
    else:
        push_event(state.events, end_us, TRANSFER_ARRIVES, transfer)


@step
def start_or_schedule(given: Given, state: SimulationState, transfer: int, now: float) -> None:
    """Start a transfer now, or push its start if its link is busy."""
    start_us = state.transfers.start_us[transfer]
    if start_us <= now:
        start_transfer(given, state, transfer)
    else:
        push_event(state.events, start_us, TRANSFER_STARTS, transfer)
