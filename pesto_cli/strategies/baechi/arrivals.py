"""When the inputs of a node can be on a device, as Baechi reckons, and how they are sent there.

A device sends or receives one tensor at a time (`placer/device.py`), and keeps what it received for
other nodes. The tensors that a node takes from one source are reckoned as one, and those of several
sources as if each had the links to itself.
"""

from pesto_cli.kernels import kernel
from pesto_cli.strategies.baechi.columns import NONE


@kernel
def _transfer_us(links, src, dst, num_bytes):  # type: ignore[no-untyped-def]
    linear = links.latency[src, dst] + links.per_byte[src, dst] * num_bytes
    return max(links.least[src, dst], linear)


@kernel
def reckon(node, here, nodes, links, state):  # type: ignore[no-untyped-def]
    """When all inputs of a node can be on a device; whether anything is to be sent for it.

    And what that instant depends on, so that it can be told later without looking at the inputs:
    the device from which a transfer would come that is there last, with the time that this takes
    (`since`), or `NONE` and an instant. With b the time until which either device is busy, the
    inputs are there no sooner than `b + since`, or than `since`, until they are sent.
    """
    arrival, sends, watched, since = 0.0, False, NONE, 0.0
    entry, last = nodes.input_offsets[node], nodes.input_offsets[node + 1]
    while entry < last:
        first = nodes.source[entry]
        there = state.device[first]
        to_send, ready = 0.0, 0.0
        while entry < last and nodes.source[entry] == first:
            what = nodes.tensor[entry]
            if there == here:
                ready = max(ready, state.end[first])
            elif nodes.is_signal[entry]:
                ready = max(ready, state.end[first] + links.signal)
            elif state.received[what, here] >= 0.0:
                ready = max(ready, state.received[what, here])
            else:
                to_send += _transfer_us(links, there, here, nodes.tensor_bytes[what])
            entry += 1
        if ready > arrival:
            arrival, watched, since = ready, NONE, ready
        if to_send > 0.0:
            sends = True
            idle = max(state.busy[there], state.busy[here])
            sent = max(state.end[first], idle) + to_send
            if sent > arrival:
                arrival = sent
                watched, since = (there, to_send) if idle >= state.end[first] else (NONE, sent)
    return arrival, sends, watched, since


@kernel
def send_inputs(node, here, nodes, links, state, sent):  # type: ignore[no-untyped-def]
    """Send what a device lacks for a node; when all is there, and how many tensors were sent.

    sent: gets these tensors, in the order of their sources.
    """
    arrival, num_sent = 0.0, 0
    for entry in range(nodes.input_offsets[node], nodes.input_offsets[node + 1]):
        first, what = nodes.source[entry], nodes.tensor[entry]
        there = state.device[first]
        if there == here:
            arrival = max(arrival, state.end[first])
        elif nodes.is_signal[entry]:
            arrival = max(arrival, state.end[first] + links.signal)
        else:
            if state.received[what, here] < 0.0:
                takes = _transfer_us(links, there, here, nodes.tensor_bytes[what])
                begin = max(state.end[first], state.busy[there])
                state.busy[there] = begin + takes
                state.busy[here] = max(begin, state.busy[here]) + takes
                state.received[what, here] = state.busy[here]
                sent[num_sent] = what
                num_sent += 1
            arrival = max(arrival, state.received[what, here])
    return arrival, num_sent
