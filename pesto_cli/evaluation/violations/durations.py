"""How long ops run: as long as they take there, and what their device loses to transfers."""

from collections.abc import Iterator

from pesto_cli.evaluation.violations.observed import Finding, Observed, ObservedTransfer


def duration(seen: Observed) -> Iterator[Finding]:
    """An op takes its time on its device, and longer by what it loses to transfers."""
    least_us, most_us = _lost_us(seen)
    for op, device in enumerate(seen.device):
        start_us, took_us = seen.start_us[op], seen.end_us[op] - seen.start_us[op]
        own_us = float(seen.problem.duration_us[op, device])
        least, most = own_us + least_us[op], own_us + most_us[op]
        if start_us < 0:
            yield "duration", f"op {seen.name(op)} starts at {start_us} us"
        if seen.later(least, took_us) or seen.later(took_us, most):
            expected = f"{least}" if least == most else f"{least} to {most}"
            yield "duration", f"op {seen.name(op)} takes {took_us} us, not {expected}"


def _lost_us(seen: Observed) -> tuple[list[float], list[float]]:
    """What each op loses to transfers, by op: at least and at most."""
    least_us, most_us = ([0.0] * len(seen.device) for _ in range(2))
    machine, num_bytes = seen.problem.machine, seen.problem.graph.tensor_bytes
    if not machine.lost_us.any():
        return least_us, most_us
    for each in seen.transfers:
        constant_us, us_per_byte = machine.lost_us[:, :, each.src, each.dst].T.tolist()
        size = int(num_bytes[each.tensor])
        for losers, side in ((_at_sender(seen, each), 0), (_at_receiver(seen, each), 1)):
            lost_us = constant_us[side] + us_per_byte[side] * size
            for op, is_sure in losers:
                most_us[op] += lost_us
                least_us[op] += lost_us if is_sure else 0.0
    return least_us, most_us


def _at_sender(seen: Observed, each: ObservedTransfer) -> Iterator[tuple[int, bool]]:
    """What may run on the sender when a transfer queues, and whether it surely does.

    Ops that start at an instant do so before anything queues; in a later step, after it.
    """
    from_us, to_us = each.queued_us
    for op in seen.running(each.src, from_us, to_us):
        start_us, end_us = seen.start_us[op], seen.end_us[op]
        runs_first = start_us < from_us or (start_us == from_us and from_us not in seen.stepped)
        yield op, runs_first and end_us > to_us


def _at_receiver(seen: Observed, each: ObservedTransfer) -> Iterator[tuple[int, bool]]:
    """What may run on the receiver when a transfer arrives, and whether it surely does.

    Arrivals come before the ops that start at that instant; in a later step, after them.
    """
    at_us = each.arrived_us
    for op in seen.running(each.dst, at_us, at_us):
        runs_before = seen.start_us[op] < at_us
        if runs_before or each.sent_us == at_us:
            yield op, runs_before
