"""Bars of a timeline: ops and transfers, with those that are too short to see merged."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from typing import Self

import numpy as np

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, transfer_channels
from pesto_cli.report.critical_path import PathSegment, row_of
from pesto_cli.report.families import NAMES, Made
from pesto_cli.report.utilisation import link_use

TRANSFER = "transfer"
# The type of an op whose type is unknown.
NO_TYPE = "op"
# Number of ops of a merged bar that are named.
NUM_NAMED = 3
MOST_LINKS = 12
# Merging begins with bars up to 1 / FINEST of the step; STEP is the growth of this limit.
FINEST = 2**13
STEP = 1.2
MOST_BARS = 3500


@dataclass(frozen=True)
class Bar:
    """An op, a transfer, or several consecutive short ones.

    row: the device or channel. name: the op, or the producer of the tensor. type: the type of the
    op, or `TRANSFER`. num_bytes: the size of its outputs, or of the tensor. count: the number of
    ops or transfers that the bar stands for. added: what the op is if a plan has added it, an entry
    of the legend; else empty.
    """

    row: str
    from_us: float
    to_us: float
    name: str
    type: str
    num_bytes: int
    count: int = 1
    added: str = ""

    @property
    def kind(self) -> str:
        """The entry of the legend: the type, or what the op was added for."""
        return self.added or self.type

    @property
    def took_us(self) -> float:
        """The time from start to end."""
        return self.to_us - self.from_us


def op_bars(problem: Problem, schedule: Schedule, added: Mapping[int, Made]) -> Iterator[Bar]:
    """Yield a bar for every op that takes time. added: see `Drawn`."""
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
            entry = NAMES[added[op]] if op in added else ""
            yield Bar(row, start_us, end_us, graph.names[op], kind, num_bytes, added=entry)


def output_bytes(graph: OpGraph) -> list[int]:
    """Return the sum of output sizes of every op in bytes, `[num_ops]`."""
    sums = np.zeros(graph.num_ops, dtype=np.int64)
    np.add.at(sums, graph.tensor_producer, graph.tensor_bytes)
    total: list[int] = sums.tolist()
    return total


def transfer_bars(problem: Problem, schedule: Schedule) -> Iterator[Bar]:
    """Yield a bar for every transfer that takes time."""
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


def row_names(problem: Problem, schedule: Schedule, path: Sequence[PathSegment] = ()) -> list[str]:
    """Return the rows of a timeline: all devices, and at most `MOST_LINKS` links.

    Links on the critical path are chosen first, then the busiest ones.
    """
    critical = {row_of(problem, schedule, segment) for segment in path}
    busy_us = busy_us_of_links(problem, schedule)
    first = sorted(busy_us, key=lambda name: (name not in critical, -busy_us[name]))[:MOST_LINKS]
    return [device.name for device in problem.machine.devices] + [
        name for name in problem.machine.channel_names if name in first
    ]


def busy_us_of_links(problem: Problem, schedule: Schedule) -> dict[str, float]:
    """Return the busy time in us of every link that is used."""
    return {use.name: use.busy_us for use in link_use(problem, schedule) if use.busy_us}


@dataclass(frozen=True, eq=False)
class Drawn:
    """The drawn parts of a schedule, each computed once for all charts.

    path: the critical path of the schedule. If more than `MOST_LINKS` links are used, those on this
        path are drawn, then the busiest others.
    most_bars: the number of bars above which short neighbours are merged.
    added: the conversions and sums that a plan has added, see `Families`.
    """

    problem: Problem
    schedule: Schedule
    path: Sequence[PathSegment] = ()
    most_bars: int = MOST_BARS
    added: Mapping[int, Made] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[str]:
        """See `row_names`."""
        return row_names(self.problem, self.schedule, self.path)

    @cached_property
    def transfers(self) -> list[Bar]:
        """Bars of the transfers on the drawn links."""
        every = transfer_bars(self.problem, self.schedule)
        return [bar for bar in every if bar.row in self.rows]

    @cached_property
    def bars(self) -> list[Bar]:
        """Bars of all ops that take time, then those of the transfers."""
        return [*op_bars(self.problem, self.schedule, self.added), *self.transfers]

    @cached_property
    def merged(self) -> tuple[list[Bar], float]:
        """See `few_enough`."""
        return few_enough(self.bars, self.most_bars)

    @property
    def num_links_left_out(self) -> int:
        """Number of links that are used, but have no row."""
        num_links = len(self.rows) - self.problem.num_devices
        return len(busy_us_of_links(self.problem, self.schedule)) - num_links


def few_enough(bars: Sequence[Bar], most: int) -> tuple[list[Bar], float]:
    """Merge short bars until there are about `most`; return them and the longest merged length.

    The length is in us, and 0 if no bars were merged.
    """
    ordered = sorted(bars, key=lambda bar: (bar.row, bar.from_us))
    rows = [_Ends.of(list(row)) for _, row in groupby(ordered, key=lambda bar: bar.row)]
    until_us = max((bar.to_us for bar in bars), default=0.0)
    first, narrow_us = [list(range(len(row.to_us))) for row in rows], 0.0
    while sum(map(len, first)) > most and narrow_us < until_us:
        narrow_us = STEP * narrow_us or until_us / FINEST
        first = [_neighbours(row, narrow_us) for row in rows]
    return [
        _as_one(row.bars[here:after])
        for row, places in zip(rows, first, strict=True)
        for here, after in pairwise([*places, len(row.bars)])
    ], narrow_us


@dataclass(frozen=True)
class _Ends:
    """The bars of a row in order of time, with their starts and ends."""

    bars: list[Bar]
    from_us: list[float]
    to_us: list[float]

    @classmethod
    def of(cls, bars: list[Bar]) -> Self:
        return cls(bars, [bar.from_us for bar in bars], [bar.to_us for bar in bars])


def _neighbours(row: _Ends, narrow_us: float) -> list[int]:
    """Return the index of the first bar of each group that spans at most `narrow_us`."""
    first, place = [], 0
    while place < len(row.to_us):
        first.append(place)
        place = bisect_right(row.to_us, row.from_us[place] + narrow_us, lo=place + 1)
    return first


def _as_one(bars: Sequence[Bar]) -> Bar:
    if len(bars) == 1:
        return bars[0]
    time_us: dict[tuple[str, str], float] = {}
    for bar in bars:
        time_us[bar.type, bar.added] = time_us.get((bar.type, bar.added), 0.0) + bar.took_us
    kind, added = max(time_us, key=lambda each: time_us[each])
    longest = sorted(bars, key=lambda bar: -bar.took_us)[:NUM_NAMED]
    return Bar(
        bars[0].row,
        bars[0].from_us,
        max(bar.to_us for bar in bars),
        f"{len(bars)} short ops: {', '.join(bar.name for bar in longest)}"
        + (", ..." if len(bars) > NUM_NAMED else ""),
        kind,
        sum(bar.num_bytes for bar in bars),
        len(bars),
        added,
    )
