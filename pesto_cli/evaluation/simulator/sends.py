"""Steps 4 and 5 of an instant: delays by idle endpoints end, and tensors queue on their links."""

from pesto_cli.evaluation.simulator.heaps import (
    RECEIVER_DELAY_ENDS,
    SENDER_DELAY_ENDS,
    TRANSFER_ARRIVES,
    push_event,
)
from pesto_cli.evaluation.simulator.paths import transfer_us
from pesto_cli.evaluation.simulator.state import (
    NOBODY,
    RECEIVER,
    SENDER,
    Given,
    SimulationState,
    append,
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
    """Step 5: send the tensors that were produced at this instant, by producer and tensor."""
    produced, op_tensors = state.produced, given.graph.op_tensors
    if produced.size[0] > 1:
        sort(produced)
    for row in range(produced.size[0]):
        op = produced.items[row]
        for tensor in range(op_tensors[op], op_tensors[op + 1]):
            send_tensor(given, state, tensor, given.device[op], now)
    produced.size[0] = 0


@step
def send_tensor(given: Given, state: SimulationState, tensor: int, here: int, now: float) -> None:
    """Send a tensor to every other device where a consumer takes its data."""
    graph, is_target = given.graph, state.devices.is_target
    for entry in range(graph.consumer_offsets[tensor], graph.consumer_offsets[tensor + 1]):
        where = given.device[graph.consumers[entry]]
        if where != here and not graph.consumer_on_host[entry]:
            is_target[where] = True
    for where in range(len(is_target)):
        if is_target[where]:
            is_target[where] = False
            send(given, state, tensor, here, where, now)


@step
def send(given: Given, state: SimulationState, tensor: int, src: int, dst: int, now: float) -> None:
    """Create a transfer; it queues at this instant unless a sender that computes delays it."""
    transfers, wait_us = state.transfers, given.machine.wait_us[src, dst]
    transfer = transfers.size[0]
    transfers.size[0] += 1
    transfers.tensor[transfer], transfers.src[transfer], transfers.dst[transfer] = tensor, src, dst
    if state.devices.running[src] >= 0 and wait_us > 0:
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
    """Step 5: queue transfers on their links, by producer, tensor and destination."""
    leaving = state.leaving
    if leaving.size[0] > 1:
        sort(leaving)
    for row in range(leaving.size[0]):
        queue_on_link(given, state, leaving.items[row], now)
    leaving.size[0] = 0


@step
def queue_on_link(given: Given, state: SimulationState, transfer: int, now: float) -> None:
    """Compute the times of a transfer; add the overhead to the op that runs on the sender.

    The times are known now, because links are first come, first served.
    """
    transfers, machine, free_us = state.transfers, given.machine, state.link_free_us
    src, dst = transfers.src[transfer], transfers.dst[transfer]
    link, num_bytes = (
        machine.channel[src, dst],
        given.graph.tensor_bytes[transfers.tensor[transfer]],
    )
    start_us = max(now, free_us[link])
    free_us[link] = start_us + transfer_us(machine, src, dst, num_bytes)
    transfers.start_us[transfer], transfers.end_us[transfer] = start_us, free_us[link]
    op, overhead_us = state.devices.running[src], machine.transfer_overhead_us
    if op >= 0:
        state.ops.end_us[op] += (
            overhead_us[0, 0, src, dst] + overhead_us[0, 1, src, dst] * num_bytes
        )
    push_event(state.events, free_us[link], TRANSFER_ARRIVES, transfer)
