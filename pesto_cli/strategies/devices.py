"""Choices of device that several strategies share."""

import numpy as np

from pesto_cli.data.graph import IntArray
from pesto_cli.data.problem import Problem


def accelerators(problem: Problem) -> list[int]:
    """The devices to spread a model over: all that are no CPU, or all if there is no other."""
    machine = problem.machine
    types = [machine.device_type(device.kind) for device in machine.devices]
    return [index for index, type_ in enumerate(types) if type_ != "CPU"] or list(
        range(machine.num_devices)
    )


def group_time_us(problem: Problem) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """`[num_groups, num_devices]`: time of a whole colocation group, inf where it may not go."""
    total = np.zeros((problem.graph.num_groups, problem.num_devices))
    np.add.at(total, problem.graph.colocation_group, problem.duration_us)
    return np.where(problem.group_allowed, total, np.inf)


def fastest_device(problem: Problem) -> IntArray:
    """`[num_groups]`: the device that runs a colocation group fastest; ties to the first."""
    fastest: IntArray = group_time_us(problem).argmin(axis=1)
    return fastest
