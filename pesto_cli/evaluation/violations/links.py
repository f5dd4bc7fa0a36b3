"""The rules on transfers: which are needed, their durations, and their order on links."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from pesto_cli.evaluation.violations.observed import Finding, Observed, ObservedTransfer


def transfer(seen: Observed) -> Iterator[Finding]:
    """A tensor is sent once to each other device that needs it, and not before it queues."""
    sent = seen.schedule.transfers
    made = list(zip(sent.tensor.tolist(), sent.dst.tolist(), strict=True))
    if len(made) != len(set(made)):
        yield "transfer", "a tensor is sent twice to one device"
    for tensor, dst in sorted(_needed(seen) ^ set(made)):
        how = "sent without need" if (tensor, dst) in made else "not sent"
        yield "transfer", f"tensor {tensor} is {how} to device {dst}"
    for each in seen.transfers:
        expected_us, took_us = _takes_us(seen, each), each.arrived_us - each.sent_us
        if seen.later(took_us, expected_us) or seen.later(expected_us, took_us):
            yield "transfer", f"tensor {each.tensor} takes {took_us} us, not {expected_us}"
        if seen.later(each.made_us, each.sent_us):
            yield "transfer", f"tensor {each.tensor} is sent before it is produced"
        elif seen.later(each.queued_us[0], each.sent_us):
            yield "transfer", f"tensor {each.tensor} is sent while its sender delays it"


def first_come_first_served(seen: Observed) -> Iterator[Finding]:
    """A link serves one transfer at a time, and starts the next one at once.

    First come first served: by when they queue; at one instant, by end of producer, producer,
    tensor, destination, unless it has several steps in which tensors queue.
    """
    queues = defaultdict(list)
    for each in seen.transfers:
        queues[int(seen.problem.machine.channel[each.src, each.dst])].append(each)
    for channel, queue in queues.items():
        name = seen.problem.machine.channel_names[channel]
        queue.sort(key=lambda each: (each.sent_us, each.arrived_us, *_come(each)))
        yield from _one_at_a_time(seen, name, queue)
        yield from _in_turn(seen, name, queue)


def _one_at_a_time(seen: Observed, name: str, queue: list[ObservedTransfer]) -> Iterator[Finding]:
    free_us, before = 0.0, -1
    for each in queue:
        could_us = max(free_us, each.queued_us[1])
        if seen.later(free_us, each.sent_us):
            yield "overlap", f"tensors {before} and {each.tensor} overlap on {name}"
        if seen.later(each.sent_us, could_us):
            what = f"tensor {each.tensor} is sent at {each.sent_us} us"
            yield "idle", f"{what} on {name}, not at {could_us}"
        free_us, before = each.arrived_us, each.tensor


def _in_turn(seen: Observed, name: str, queue: list[ObservedTransfer]) -> Iterator[Finding]:
    """Compare each transfer with the one that queued last before it, and with ties."""
    last: ObservedTransfer | None = None
    tied: dict[float, ObservedTransfer] = {}
    for each in queue:
        first_us, last_us = each.queued_us
        before = last if last and last_us < last.queued_us[0] else None
        if first_us == last_us and first_us not in seen.stepped:
            other = tied.setdefault(first_us, each)
            before = other if _come(each) < _come(other) else before
            tied[first_us] = max(each, other, key=_come)
        if before:
            yield "queue", f"tensor {each.tensor} is sent after {before.tensor} on {name}"
        if last is None or first_us > last.queued_us[0]:
            last = each


def _come(each: ObservedTransfer) -> tuple[float, float, int, int, int]:
    return each.queued_us[0], each.made_us, each.producer, each.tensor, each.dst


def _takes_us(seen: Observed, each: ObservedTransfer) -> float:
    machine, ends = seen.problem.machine, (each.src, each.dst)
    size = int(seen.problem.graph.tensor_bytes[each.tensor])
    linear_us = machine.latency_us[ends] + machine.us_per_byte[ends] * size
    return float(max(machine.min_us[ends], linear_us))


def _needed(seen: Observed) -> set[tuple[int, int]]:
    """Return (tensor, destination) of all data that a consumer on another device takes."""
    graph, device = seen.problem.graph, np.array(seen.device)
    producer = graph.tensor_producer[graph.consumer_tensor]
    dst = device[graph.consumers]
    is_sent = (device[producer] != dst) & ~graph.consumer_on_host
    return set(zip(graph.consumer_tensor[is_sent].tolist(), dst[is_sent].tolist(), strict=True))
