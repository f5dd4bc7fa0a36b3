"""Timelines: the busy periods of devices and links."""

from collections.abc import Iterable, Iterator

from pesto_cli.bench.record import Busy
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, transfer_channels

# Busy periods whose distance is at most this share of the step are drawn as one.
DRAWN_APART = 1e-3


def timeline(problem: Problem, schedule: Schedule) -> dict[str, Busy]:
    """Return the busy periods of every device and channel that is used."""
    machine, transfers = problem.machine, schedule.transfers
    channel = transfer_channels(problem, schedule)
    spans = {
        device.name: (schedule.start_us[here], schedule.end_us[here])
        for index, device in enumerate(machine.devices)
        for here in [schedule.device == index]
    } | {
        name: (transfers.start_us[here], transfers.end_us[here])
        for index, name in enumerate(machine.channel_names)
        for here in [channel == index]
    }
    apart_us = DRAWN_APART * schedule.makespan_us
    rows = {
        name: list(joined(zip(starts.tolist(), ends.tolist(), strict=True), apart_us))
        for name, (starts, ends) in spans.items()
    }
    return {name: row for name, row in rows.items() if row}


def joined(spans: Iterable[tuple[float, float]], apart_us: float) -> Iterator[tuple[float, float]]:
    """Join spans whose distance is at most `apart_us`; leave out spans of no length."""
    some = sorted(span for span in spans if span[1] > span[0])
    if not some:
        return
    since_us, until_us = some[0]
    for start_us, end_us in some[1:]:
        if start_us > until_us + apart_us:
            yield since_us, until_us
            since_us = start_us
        until_us = max(until_us, end_us)
    yield since_us, until_us
