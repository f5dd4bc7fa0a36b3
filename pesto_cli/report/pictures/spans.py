"""What runs when on devices and links, as bars: what is too narrow to see is merged."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, transfer_channels
from pesto_cli.report.chain import ChainPiece, row_of
from pesto_cli.report.utilisation import link_use

TRANSFER = "transfer"
# An op whose type nobody told.
NO_TYPE = "op"
# How many of the ops of a merged bar are named.
NUM_NAMED = 3
MOST_LINKS = 12
# Shorter than this part of the step, bars are merged first.
FINEST = 2**13
STEP = 1.2


@dataclass(frozen=True)
class Bar:
    """An op, a transfer, or several short ones in a row.

    row: device or channel. name: of the op, or of the one that made the tensor.
    type: of the op, or `TRANSFER`. num_bytes: of its outputs, or of the tensor.
    count: how many it stands for.
    """

    row: str
    from_us: float
    to_us: float
    name: str
    type: str
    num_bytes: int
    count: int = 1

    @property
    def took_us(self) -> float:
        """From its start to its end."""
        return self.to_us - self.from_us


def op_bars(problem: Problem, schedule: Schedule) -> Iterator[Bar]:
    """Every op that takes time."""
    graph = problem.graph
    for op, (device, start_us, end_us, num_bytes) in enumerate(
        zip(
            schedule.device.tolist(),
            schedule.start_us.tolist(),
            schedule.end_us.tolist(),
            output_bytes(graph),
            strict=True,
        )
    ):
        if end_us > start_us:
            row, kind = problem.machine.devices[device].name, graph.types[op] or NO_TYPE
            yield Bar(row, start_us, end_us, graph.names[op], kind, num_bytes)


def output_bytes(graph: OpGraph) -> list[int]:
    """Of all tensors that an op makes, `[num_ops]`."""
    sums = np.zeros(graph.num_ops, dtype=np.int64)
    np.add.at(sums, graph.tensor_producer, graph.tensor_bytes)
    total: list[int] = sums.tolist()
    return total


def transfer_bars(problem: Problem, schedule: Schedule) -> Iterator[Bar]:
    """Every transfer that takes time."""
    graph, machine, transfers = problem.graph, problem.machine, schedule.transfers
    for tensor, channel, start_us, end_us in zip(
        transfers.tensor.tolist(),
        transfer_channels(problem, schedule).tolist(),
        transfers.start_us.tolist(),
        transfers.end_us.tolist(),
        strict=True,
    ):
        name = graph.names[int(graph.tensor_producer[tensor])]
        if end_us > start_us:
            row, size = machine.channel_names[channel], int(graph.tensor_bytes[tensor])
            yield Bar(row, start_us, end_us, name, TRANSFER, size)


def row_names(problem: Problem, schedule: Schedule, chain: Sequence[ChainPiece] = ()) -> list[str]:
    """Devices; then links, those on the critical chain first and then the busiest, some in all."""
    critical = {row_of(problem, schedule, piece) for piece in chain}
    busy_us = busy_us_of_links(problem, schedule)
    first = sorted(busy_us, key=lambda name: (name not in critical, -busy_us[name]))[:MOST_LINKS]
    return [device.name for device in problem.machine.devices] + [
        name for name in problem.machine.channel_names if name in first
    ]


def busy_us_of_links(problem: Problem, schedule: Schedule) -> dict[str, float]:
    """Of every link that is used."""
    return {use.name: use.busy_us for use in link_use(problem, schedule) if use.busy_us}


def drawn_bars(problem: Problem, schedule: Schedule, rows: Sequence[str]) -> list[Bar]:
    """Ops and transfers that take time, on these rows."""
    transfers = (bar for bar in transfer_bars(problem, schedule) if bar.row in rows)
    return [*op_bars(problem, schedule), *transfers]


def few_enough(bars: Sequence[Bar], most: int) -> tuple[list[Bar], float]:
    """No more bars than `most` or little above, and how long a bar may be that stands for several.

    0 where none does.
    """
    ordered = sorted(bars, key=lambda bar: (bar.row, bar.from_us))
    until_us = max((bar.to_us for bar in bars), default=0.0)
    groups, narrow_us = [[bar] for bar in ordered], 0.0
    while len(groups) > most and narrow_us < until_us:
        narrow_us = STEP * narrow_us or until_us / FINEST
        groups = _neighbours(ordered, narrow_us)
    return [_as_one(group) for group in groups], narrow_us


def _neighbours(ordered: Iterable[Bar], narrow_us: float) -> list[list[Bar]]:
    """Bars of a row that end within some time from the start of the first one, together."""
    groups: list[list[Bar]] = []
    row, limit_us = "", 0.0
    for bar in ordered:
        if groups and bar.row == row and bar.to_us <= limit_us:
            groups[-1].append(bar)
        else:
            groups.append([bar])
            row, limit_us = bar.row, bar.from_us + narrow_us
    return groups


def _as_one(bars: Sequence[Bar]) -> Bar:
    if len(bars) == 1:
        return bars[0]
    time_us: dict[str, float] = {}
    for bar in bars:
        time_us[bar.type] = time_us.get(bar.type, 0.0) + bar.took_us
    longest = sorted(bars, key=lambda bar: -bar.took_us)[:NUM_NAMED]
    return Bar(
        bars[0].row,
        bars[0].from_us,
        max(bar.to_us for bar in bars),
        f"{len(bars)} short ones: {', '.join(bar.name for bar in longest)}"
        + (", ..." if len(bars) > NUM_NAMED else ""),
        max(time_us, key=lambda name: time_us[name]),
        sum(bar.num_bytes for bar in bars),
        len(bars),
    )
