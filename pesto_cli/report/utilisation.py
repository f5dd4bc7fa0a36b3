"""The utilisation of devices and links, and the parts of the step time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, transfer_channels
from pesto_cli.report.critical_path import PathSegment, parts, row_of


@dataclass(frozen=True)
class Use:
    """The use of a device or channel in a step.

    count: number of ops or transfers. num_bytes: outputs of these ops, or bytes sent. busy_us: sum
    of their times.
    """

    name: str
    count: int
    num_bytes: int
    busy_us: float


def device_use(problem: Problem, schedule: Schedule) -> list[Use]:
    """Return one entry for each device."""
    graph, machine = problem.graph, problem.machine
    names = [device.name for device in machine.devices]
    made_on = schedule.device[graph.tensor_producer]
    bytes_made = np.bincount(made_on, graph.tensor_bytes, machine.num_devices)
    return _uses(names, schedule.device, schedule.end_us - schedule.start_us, bytes_made)


def link_use(problem: Problem, schedule: Schedule) -> list[Use]:
    """Return one entry for each channel with transfers."""
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
    problem: Problem, schedule: Schedule, path: Sequence[PathSegment]
) -> dict[str, float]:
    """Return the time of the critical path in us by device, link or wait, the largest first."""
    sums = parts(path, lambda segment: row_of(problem, schedule, segment))
    return {part.name: part.time_us for part in sums}
