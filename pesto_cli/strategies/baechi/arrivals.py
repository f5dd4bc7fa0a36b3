"""The arrival of a node's inputs at a device in Baechi's model.

A device sends or receives one tensor at a time (`placer/device.py`), and keeps received tensors for
other nodes. The estimate treats the tensors from one source as one transfer, and transfers from
different sources as independent.
"""

from pesto_cli.kernels import kernel
from pesto_cli.strategies.baechi.columns import NONE


@kernel
def _transfer_us(links, src, dst, num_bytes):  # type: ignore[no-untyped-def]
    linear = links.latency[src, dst] + links.per_byte[src, dst] * num_bytes
    return max(links.least[src, dst], linear)


@kernel
def estimate_arrival(node, here, nodes, links, state):  # type: ignore[no-untyped-def]
    """Return (arrival, sends, watched, since) of a node's inputs on the device `here`.

    `arrival` is the estimated time at which all inputs are there, and `sends` is whether any of
    them still has to be sent. `watched` and `since` give a lower bound on the arrival that stays
    valid until an input is sent, without reading the inputs again. If `watched` is a device, it is
    the source of the last transfer, and the bound is b + `since`, where b is the time until which
    either of the two devices is busy. If `watched` is `NONE`, the bound is `since`.
    """
    arrival, sends, watched, since = 0.0, False, NONE, 0.0
    entry, last = nodes.input_offsets[node], nodes.input_offsets[node + 1]
    while entry < last:
        first = nodes.source[entry]
        there = state.device[first]
        to_send, ready = 0.0, 0.0
        while entry < last and nodes.source[entry] == first:
            tensor = nodes.tensor[entry]
            if there == here:
                ready = max(ready, state.end[first])
            elif nodes.is_signal[entry]:
                ready = max(ready, state.end[first] + links.signal)
            elif state.received[tensor, here] >= 0.0:
                ready = max(ready, state.received[tensor, here])
            else:
                to_send += _transfer_us(links, there, here, nodes.tensor_bytes[tensor])
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
    """Send the missing inputs of a node to a device; return their arrival and how many were sent.

    sent: receives the sent tensors, in the order of their sources.
    """
    arrival, num_sent = 0.0, 0
    for entry in range(nodes.input_offsets[node], nodes.input_offsets[node + 1]):
        first, tensor = nodes.source[entry], nodes.tensor[entry]
        there = state.device[first]
        if there == here:
            arrival = max(arrival, state.end[first])
        elif nodes.is_signal[entry]:
            arrival = max(arrival, state.end[first] + links.signal)
        else:
            if state.received[tensor, here] < 0.0:
                takes = _transfer_us(links, there, here, nodes.tensor_bytes[tensor])
                begin = max(state.end[first], state.busy[there])
                state.busy[there] = begin + takes
                state.busy[here] = max(begin, state.busy[here]) + takes
                state.received[tensor, here] = state.busy[here]
                sent[num_sent] = tensor
                num_sent += 1
            arrival = max(arrival, state.received[tensor, here])
    return arrival, num_sent
