"""When the inputs of a node can be on a device. A device sends or receives one tensor at a time."""

from pesto_cli.evaluation.simulator.paths import transfer_us
from pesto_cli.kernels import step
from pesto_cli.strategies.baechi.state import PlacerInput, PlacerState


@step
def reckon(given: PlacerInput, state: PlacerState, node: int) -> None:
    """When all inputs of a ready node can be on each device, and whether any is to be sent."""
    for here in range(len(state.devices.room)):
        arrival_us, sends = arrival(given, state, node, here)
        state.reckoned.arrival_us[node, here] = arrival_us
        state.reckoned.sends[node, here] = sends


@step
def arrival(given: PlacerInput, state: PlacerState, node: int, here: int) -> tuple[float, bool]:
    """When all inputs of a node can be on a device; whether anything is to be sent for it.

    The tensors from one source are reckoned as one, and those from several as if alone.
    """
    inputs, busy_us = given.graph.inputs, state.devices.busy_us
    arrival_us, sends = 0.0, False
    entry, last = inputs.offsets[node], inputs.offsets[node + 1]
    while entry < last:
        source = inputs.source[entry]
        there, end_us, to_send_us = state.nodes.device[source], state.nodes.end_us[source], 0.0
        while entry < last and inputs.source[entry] == source:
            tensor = inputs.tensor[entry]
            if there == here:
                arrival_us = max(arrival_us, end_us)
            elif inputs.is_signal[entry]:
                arrival_us = max(arrival_us, end_us + given.links.signal_us)
            elif state.received_us[tensor, here] >= 0.0:
                arrival_us = max(arrival_us, state.received_us[tensor, here])
            else:
                to_send_us += transfer_us(given.links, there, here, inputs.tensor_bytes[tensor])
            entry += 1
        if to_send_us > 0.0:
            sends = True
            sent_us = max(end_us, busy_us[there])
            arrival_us = max(arrival_us, max(sent_us, busy_us[here]) + to_send_us)
    return arrival_us, sends


@step
def send_inputs(given: PlacerInput, state: PlacerState, node: int, here: int) -> tuple[float, bool]:
    """Send what a device lacks for a node; when all is there, and whether anything was sent."""
    inputs, nodes, received_us = given.graph.inputs, state.nodes, state.received_us
    arrival_us, sends = 0.0, False
    for entry in range(inputs.offsets[node], inputs.offsets[node + 1]):
        source, tensor = inputs.source[entry], inputs.tensor[entry]
        if nodes.device[source] == here:
            arrival_us = max(arrival_us, nodes.end_us[source])
        elif inputs.is_signal[entry]:
            arrival_us = max(arrival_us, nodes.end_us[source] + given.links.signal_us)
        else:
            if received_us[tensor, here] < 0.0:
                send(given, state, source, tensor, here)
                sends = True
            arrival_us = max(arrival_us, received_us[tensor, here])
    return arrival_us, sends


@step
def send(given: PlacerInput, state: PlacerState, source: int, tensor: int, here: int) -> None:
    """Send a tensor of a source as soon as this device and the sender are free."""
    there, busy_us = state.nodes.device[source], state.devices.busy_us
    takes_us = transfer_us(given.links, there, here, given.graph.inputs.tensor_bytes[tensor])
    sent_us = max(state.nodes.end_us[source], busy_us[there])
    busy_us[there] = sent_us + takes_us
    busy_us[here] = max(sent_us, busy_us[here]) + takes_us
    state.received_us[tensor, here] = busy_us[here]
