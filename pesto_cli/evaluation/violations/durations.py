"""The rule on durations of ops: their time on the device, and the overhead of transfers."""

from collections.abc import Iterator

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.evaluation.violations.observed import Finding, Observed, ObservedTransfer


def duration(seen: Observed) -> Iterator[Finding]:
    """An op takes its time on its device, plus the overhead of transfers during its run."""
    start_us, device = seen.schedule.start_us, seen.schedule.device
    took_us = seen.schedule.end_us - start_us
    own_us = seen.problem.duration_us[np.arange(len(device)), device]
    least_us, most_us = (own_us + overhead_us for overhead_us in _overhead_us(seen))
    for op in np.flatnonzero(start_us < 0).tolist():
        yield "duration", f"op {seen.name(op)} starts at {seen.start_us[op]} us"
    is_wrong = seen.later(least_us, took_us) | seen.later(took_us, most_us)
    for op in np.flatnonzero(is_wrong).tolist():
        least, most = float(least_us[op]), float(most_us[op])
        expected = f"{least}" if least == most else f"{least} to {most}"
        yield "duration", f"op {seen.name(op)} takes {float(took_us[op])} us, not {expected}"


def _overhead_us(seen: Observed) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest possible transfer overhead of each op in us."""
    least_us, most_us = (np.zeros(len(seen.device)) for _ in range(2))
    machine, num_bytes = seen.problem.machine, seen.problem.graph.tensor_bytes
    if not machine.transfer_overhead_us.any():
        return least_us, most_us
    for each in seen.transfers:
        constant_us, us_per_byte = machine.transfer_overhead_us[:, :, each.src, each.dst].T.tolist()
        size = int(num_bytes[each.tensor])
        for delayed, side in ((_at_sender(seen, each), 0), (_at_receiver(seen, each), 1)):
            overhead_us = constant_us[side] + us_per_byte[side] * size
            for op, is_sure in delayed:
                most_us[op] += overhead_us
                least_us[op] += overhead_us if is_sure else 0.0
    return least_us, most_us


def _at_sender(seen: Observed, each: ObservedTransfer) -> Iterator[tuple[int, bool]]:
    """Yield ops that may run on the sender when a transfer queues, and whether they surely do.

    An op starts before tensors queue at the same instant, or after them in a later round.
    """
    from_us, to_us = each.queued_us
    for op in seen.running(each.src, from_us, to_us):
        start_us, end_us = seen.start_us[op], seen.end_us[op]
        runs_first = start_us < from_us or (start_us == from_us and from_us not in seen.stepped)
        yield op, runs_first and end_us > to_us


def _at_receiver(seen: Observed, each: ObservedTransfer) -> Iterator[tuple[int, bool]]:
    """Yield ops that may run on the receiver when a transfer arrives, and whether they surely do.

    A tensor arrives before ops start at the same instant, or after them in a later round.
    """
    at_us = each.arrived_us
    for op in seen.running(each.dst, at_us, at_us):
        runs_before = seen.start_us[op] < at_us
        if runs_before or each.sent_us == at_us:
            yield op, runs_before
