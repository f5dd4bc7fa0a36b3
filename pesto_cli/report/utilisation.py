"""How busy devices and links are, and what the step time is made of."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, transfer_channels
from pesto_cli.report.critical_path import PathSegment, parts, row_of


@dataclass(frozen=True)
class Use:
    """Of a device or channel: what it does in a step.

    count: ops or transfers. num_bytes: made there, or sent.
    """

    name: str
    count: int
    num_bytes: int
    busy_us: float


def device_use(problem: Problem, schedule: Schedule) -> list[Use]:
    """One entry a device."""
    graph, machine = problem.graph, problem.machine
    names = [device.name for device in machine.devices]
    made_on = schedule.device[graph.tensor_producer]
    bytes_made = np.bincount(made_on, graph.tensor_bytes, machine.num_devices)
    return _uses(names, schedule.device, schedule.end_us - schedule.start_us, bytes_made)


def link_use(problem: Problem, schedule: Schedule) -> list[Use]:
    """One entry a channel that carries something."""
    transfers, names = schedule.transfers, problem.machine.channel_names
    channel = transfer_channels(problem, schedule)
    bytes_sent = np.bincount(channel, problem.graph.tensor_bytes[transfers.tensor], len(names))
    uses = _uses(names, channel, transfers.end_us - transfers.start_us, bytes_sent)
    return [use for use in uses if use.count]


def _uses(
    names: Sequence[str], row: IntArray, took_us: FloatArray, num_bytes: IntArray | FloatArray
) -> list[Use]:
    count = np.bincount(row, minlength=len(names))
    busy_us = np.bincount(row, took_us, len(names))
    return [
        Use(name, int(count[index]), int(num_bytes[index]), float(busy_us[index]))
        for index, name in enumerate(names)
    ]


def step_parts(
    problem: Problem, schedule: Schedule, chain: Sequence[PathSegment]
) -> dict[str, float]:
    """What the critical chain consists of: us by device, link or kind of wait, the most first."""
    sums = parts(chain, lambda piece: row_of(problem, schedule, piece))
    return {part.name: part.time_us for part in sums}
