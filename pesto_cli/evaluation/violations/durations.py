"""The rule on durations of ops: their time, the overhead of transfers, and contention."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.evaluation.violations.observed import Finding, Observed
from pesto_cli.evaluation.work import work_us


def duration(seen: Observed) -> Iterator[Finding]:
    """An op takes its time on its device, plus the overhead of transfers during its run.

    While k other devices of the kind and host run ops, 1 + k * slow-down us count as 1 us.
    """
    start_us, device = seen.schedule.start_us, seen.schedule.device
    took_us = work_us(seen.problem, seen.schedule)
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
    overhead_us = seen.problem.machine.transfer_overhead_us
    if not overhead_us.any():
        return least_us, most_us
    timed = [_TimedOps(seen, device) for device in range(seen.problem.num_devices)]
    for sent in _sent(seen):
        constant_us, us_per_byte = overhead_us[:, :, sent.src, sent.dst].T.tolist()
        for side, device in enumerate((sent.src, sent.dst)):
            for op, least, most in timed[device].during(sent):
                whole_us = constant_us[side] + us_per_byte[side] * sent.num_bytes
                least_us[op] += whole_us * least
                most_us[op] += whole_us * most
    return least_us, most_us


class _Sent(NamedTuple):
    """A transfer or signal.

    start_us: earliest and latest start; end_us: end after the latest start.
    """

    src: int
    dst: int
    num_bytes: int
    start_us: tuple[float, float]
    end_us: float


def _sent(seen: Observed) -> Iterator[_Sent]:
    num_bytes = seen.problem.graph.tensor_bytes
    for each in seen.transfers:
        start_us, size = (each.sent_us, each.sent_us), int(num_bytes[each.tensor])
        yield _Sent(each.src, each.dst, size, start_us, each.arrived_us)
    for signal in seen.signals:
        end_us = signal.sent_us[1] + seen.problem.machine.signal_us
        yield _Sent(signal.src, signal.dst, 0, signal.sent_us, end_us)


class _TimedOps:
    """The ops of a device that take time, by start."""

    def __init__(self, seen: Observed, device: int) -> None:
        own_us = seen.problem.duration_us[:, device]
        self._ops = [op for op in seen.ops.get(device, []) if own_us[op] > 0]
        self._start_us = [seen.start_us[op] for op in self._ops]
        self._end_us = [seen.end_us[op] for op in self._ops]

    def during(self, sent: _Sent) -> Iterator[tuple[int, float, float]]:
        """Yield ops that may have the overhead of a transfer, and their least and largest shares.

        The op has it that runs when the transfer starts, or that starts first before it ends.
        """
        (start_us, latest_us), end_us = sent.start_us, sent.end_us
        at = bisect_right(self._start_us, start_us) - 1
        if start_us < latest_us:
            for each in range(max(at, 0), bisect_right(self._start_us, end_us)):
                yield self._ops[each], 0.0, float(self._end_us[each] > start_us)
        elif at >= 0 and self._end_us[at] > start_us:
            # An op that starts together with a transfer of no time starts before or after it.
            is_sure = self._start_us[at] < start_us or end_us > start_us
            yield self._ops[at], float(is_sure), 1.0
        elif at + 1 < len(self._ops) and self._start_us[at + 1] < end_us:
            share = (end_us - self._start_us[at + 1]) / (end_us - start_us)
            yield self._ops[at + 1], share, share
