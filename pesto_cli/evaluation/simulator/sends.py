"""Steps 4 and 5 of an instant: idle ends keep nothing waiting, and tensors queue on their links."""

from pesto_cli.evaluation.simulator.heaps import (
    RECEIVER_HAS_WAITED,
    SENDER_HAS_WAITED,
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
def end_waits_of_idle_receivers(state: SimulationState, now: float) -> None:
    """Step 4: consumers can take what idle receivers kept; the events of later ends are void."""
    sendings, kept, running = state.sendings, state.kept, state.devices.running
    for row in range(kept.size[0]):
        sending = kept.items[row]
        if sendings.kept_by[sending] == RECEIVER and running[sendings.dst[sending]] < 0:
            push_event(state.events, now, RECEIVER_HAS_WAITED, sending)


@step
def send_outputs(given: Given, state: SimulationState, now: float) -> None:
    """Step 5: tensors that were produced at this instant are sent, by producer and tensor."""
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
    """A tensor goes to every other device where a consumer takes its data."""
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
    """A new sending leaves at once, unless its sender computes and keeps it waiting."""
    sendings, wait_us = state.sendings, given.machine.wait_us[src, dst]
    sending = sendings.size[0]
    sendings.size[0] += 1
    sendings.tensor[sending], sendings.src[sending], sendings.dst[sending] = tensor, src, dst
    if state.devices.running[src] >= 0 and wait_us > 0:
        sendings.kept_by[sending] = SENDER
        append(state.kept, sending)
        push_event(state.events, now + wait_us, SENDER_HAS_WAITED, sending)
    else:
        append(state.leaving, sending)


@step
def end_waits_of_idle_senders(state: SimulationState) -> None:
    """Step 5: what idle senders kept leaves; what nobody keeps is listed no longer."""
    sendings, kept, running = state.sendings, state.kept, state.devices.running
    still = 0
    for row in range(kept.size[0]):
        sending = kept.items[row]
        if sendings.kept_by[sending] == SENDER and running[sendings.src[sending]] < 0:
            sendings.kept_by[sending] = NOBODY
            append(state.leaving, sending)
        elif sendings.kept_by[sending] != NOBODY:
            kept.items[still] = sending
            still += 1
    kept.size[0] = still


@step
def queue_on_links(given: Given, state: SimulationState, now: float) -> None:
    """Step 5: what leaves queues, by producer, tensor and destination."""
    leaving = state.leaving
    if leaving.size[0] > 1:
        sort(leaving)
    for row in range(leaving.size[0]):
        queue_on_link(given, state, leaving.items[row], now)
    leaving.size[0] = 0


@step
def queue_on_link(given: Given, state: SimulationState, sending: int, now: float) -> None:
    """As links serve first come first, the times are known. A sender that computes loses time."""
    sendings, machine, free_us = state.sendings, given.machine, state.link_free_us
    src, dst = sendings.src[sending], sendings.dst[sending]
    link, num_bytes = machine.channel[src, dst], given.graph.tensor_bytes[sendings.tensor[sending]]
    start_us = max(now, free_us[link])
    free_us[link] = start_us + transfer_us(machine, src, dst, num_bytes)
    sendings.start_us[sending], sendings.end_us[sending] = start_us, free_us[link]
    op, lost = state.devices.running[src], machine.lost_us
    if op >= 0:
        state.ops.end_us[op] += lost[0, 0, src, dst] + lost[0, 1, src, dst] * num_bytes
    push_event(state.events, free_us[link], TRANSFER_ARRIVES, sending)
