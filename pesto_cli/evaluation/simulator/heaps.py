"""Binary min-heaps: future events, and the ready ops of every device."""

from typing import NamedTuple

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.kernels import step


class Events(NamedTuple):
    """A heap of future events, earliest first; events of one instant are in any order.

    time_us: `[capacity]`.
    code: `[capacity]`, encodes the kind of event and the transfer.
    size: `[1]`, number of events.
    """

    time_us: FloatArray
    code: IntArray
    size: IntArray


# Kinds of events: a transfer starts on its link, or arrives; the delay by a sender or receiver is
# over.
TRANSFER_STARTS, TRANSFER_ARRIVES, SENDER_DELAY_ENDS, RECEIVER_DELAY_ENDS = range(4)
NUM_KINDS = 4


class ReadyOps(NamedTuple):
    """A heap of ready ops for each device; lowest key first, ties to the lowest index.

    op: `[num_ops]`, the heaps one after the other.
    op_key: `[num_ops]`, the key of each op in `op`.
    first: `[num_devices + 1]`, offset of each heap in `op`.
    size: `[num_devices]`, number of ready ops of each device.
    key: `[num_ops]`, by op.
    """

    op: IntArray
    op_key: FloatArray
    first: IntArray
    size: IntArray
    key: FloatArray


@step
def push_event(events: Events, time_us: float, kind: int, item: int) -> None:
    """Add an event."""
    times, codes, child = events.time_us, events.code, events.size[0]
    code = item * NUM_KINDS + kind
    while child > 0:
        parent = (child - 1) >> 1
        if times[parent] <= time_us:
            break
        times[child], codes[child] = times[parent], codes[parent]
        child = parent
    times[child], codes[child] = time_us, code
    events.size[0] += 1


@step
def pop_event(events: Events) -> tuple[int, int]:
    """Remove the earliest event; return its kind and its transfer."""
    times, codes, size = events.time_us, events.code, events.size[0] - 1
    earliest = codes[0]
    time, last = times[size], codes[size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[parent], codes[parent] = times[child], codes[child]
        parent = child
    times[parent], codes[parent] = time, last
    events.size[0] = size
    return earliest % NUM_KINDS, earliest // NUM_KINDS


@step
def is_due(events: Events, now: float) -> bool:
    """Return whether an event is due at this instant."""
    return bool(events.size[0] > 0 and events.time_us[0] <= now)


@step
def push_ready(ready: ReadyOps, here: int, op: int) -> None:
    """Add a ready op of a device."""
    ops, keys, first, child = ready.op, ready.op_key, ready.first[here], ready.size[here]
    key = ready.key[op]
    while child > 0:
        parent = (child - 1) >> 1
        above = first + parent
        if keys[above] < key or (keys[above] == key and ops[above] < op):
            break
        ops[first + child], keys[first + child] = ops[above], keys[above]
        child = parent
    ops[first + child], keys[first + child] = op, key
    ready.size[here] += 1


@step
def pop_ready(ready: ReadyOps, here: int) -> int:
    """Remove and return the first ready op of a device."""
    ops, keys, first, size = ready.op, ready.op_key, ready.first[here], ready.size[here] - 1
    top: int = ops[first]
    last, key = ops[first + size], keys[first + size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        down = first + child
        if child + 1 < size and (
            keys[down + 1] < keys[down]
            or (keys[down + 1] == keys[down] and ops[down + 1] < ops[down])
        ):
            child, down = child + 1, down + 1
        if keys[down] > key or (keys[down] == key and ops[down] > last):
            break
        ops[first + parent], keys[first + parent] = ops[down], keys[down]
        parent = child
    ops[first + parent], keys[first + parent] = last, key
    ready.size[here] = size
    return top
