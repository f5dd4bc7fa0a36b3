"""Step 1 of an instant, second part: signals and transfers arrive, and waits end."""

from pesto_cli.evaluation.simulator.ends import release
from pesto_cli.evaluation.simulator.heaps import (
    RECEIVER_HAS_WAITED,
    SENDER_HAS_WAITED,
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
def take_arrivals(given: Given, state: SimulationState, now: float) -> None:
    """Signals and transfers arrive, and ends have kept tensors waiting for long enough."""
    kept_by, num_devices = state.sendings.kept_by, len(state.devices.running)
    while is_due(state.events, now):
        kind, item = pop_event(state.events)
        if kind == SIGNAL_ARRIVES:
            take_signal(given, state, item // num_devices, item % num_devices)
        elif kind == TRANSFER_ARRIVES:
            if not keep_at_receiver(given, state, item, now):
                take_tensor(given, state, item)
        elif kind == RECEIVER_HAS_WAITED and kept_by[item] == RECEIVER:
            take_tensor(given, state, item)
        elif kind == SENDER_HAS_WAITED and kept_by[item] == SENDER:
            kept_by[item] = NOBODY
            append(state.leaving, item)


@step
def take_signal(given: Given, state: SimulationState, op: int, here: int) -> None:
    """A signal is there: what an op's control edges and its tensors in host memory wait for."""
    graph, device = given.graph, given.device
    first, last = graph.op_tensors[op], graph.op_tensors[op + 1]
    for entry in range(graph.consumer_offsets[first], graph.consumer_offsets[last]):
        if device[graph.consumers[entry]] == here and graph.consumer_on_host[entry]:
            release(given, state, graph.consumers[entry], here)
    for entry in range(graph.control_offsets[op], graph.control_offsets[op + 1]):
        if device[graph.control_successors[entry]] == here:
            release(given, state, graph.control_successors[entry], here)


@step
def keep_at_receiver(given: Given, state: SimulationState, sending: int, now: float) -> bool:
    """A receiver that computes loses time; whether it keeps the tensor waiting, too."""
    src, here = state.sendings.src[sending], state.sendings.dst[sending]
    op, wait_us = state.devices.running[here], given.machine.wait_us[src, here]
    if op < 0:
        return False
    lost, num_bytes = (
        given.machine.lost_us,
        given.graph.tensor_bytes[state.sendings.tensor[sending]],
    )
    state.ops.end_us[op] += lost[1, 0, src, here] + lost[1, 1, src, here] * num_bytes
    if wait_us > 0:
        state.sendings.kept_by[sending] = RECEIVER
        append(state.kept, sending)
        push_event(state.events, now + wait_us, RECEIVER_HAS_WAITED, sending)
    return bool(wait_us > 0)


@step
def take_tensor(given: Given, state: SimulationState, sending: int) -> None:
    """Consumers of a tensor's data can take it on the device that it was sent to."""
    graph, device = given.graph, given.device
    tensor, here = state.sendings.tensor[sending], state.sendings.dst[sending]
    state.sendings.kept_by[sending] = NOBODY
    for entry in range(graph.consumer_offsets[tensor], graph.consumer_offsets[tensor + 1]):
        if device[graph.consumers[entry]] == here and not graph.consumer_on_host[entry]:
            release(given, state, graph.consumers[entry], here)
