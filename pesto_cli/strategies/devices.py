"""Device choices that several strategies use."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pesto_cli.data.canonical import rounded
from pesto_cli.data.graph import IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem

ON_ONE_HOST = "on one host"
"""Part of the names of schedules on one of several hosts."""

LEAST_US = 1e-3
"""Shorter steps count as this long, so that the speed of a device without work is finite."""


def accelerators(problem: Problem) -> list[int]:
    """Return the indices of the devices that are not CPUs, or of all devices if all are CPUs.

    A device on which the constraints permit no op is left out.
    """
    machine = problem.machine
    usable = np.flatnonzero(problem.permitted.any(axis=0) | (problem.num_ops == 0)).tolist()
    types = [machine.device_type(device.kind) for device in machine.devices]
    return [index for index in usable if types[index] != "CPU"] or usable


def hosts_of_devices(problem: Problem) -> list[str]:
    """Return the host of each device, `[num_devices]`: the task of the first device on it.

    Devices of one task are on one host, and so are those from which all transfers to some other
    devices share one channel, a network card.
    """
    task = {device.name: device.task for device in problem.machine.devices}
    ends = defaultdict[str, tuple[set[str], set[str]]](lambda: (set(), set()))
    for link in problem.machine.links:
        sources, destinations = ends[link.channel]
        sources.add(link.src)
        destinations.add(link.dst)
    host = {name: name for name in task.values()}
    for channel, (sources, destinations) in ends.items():
        if channel and sources.isdisjoint(destinations):
            merged = {host[task[name]] for name in sources}
            first = next(name for name in task.values() if host[name] in merged)
            host = {name: host[first] if of in merged else of for name, of in host.items()}
    return [host[name] for name in task.values()]


@cached_per_problem
def on_first_host(problem: Problem) -> Problem | None:
    """Return the problem on the devices of the first accelerator's host.

    None if the constraints permit ops on one host only. Groups that cannot be on the first host
    keep all of their devices.
    """
    hosts = hosts_of_devices(problem)
    here = np.array([host == hosts[accelerators(problem)[0]] for host in hosts])
    if here[problem.permitted.any(axis=0)].all():
        return None
    can_be_here = (problem.group_allowed & here).any(axis=1)[problem.graph.colocation_group]
    return replace(problem, permitted=problem.permitted & (here | ~can_be_here[:, None]))


def is_on_first_host(problem: Problem, device: IntArray) -> bool:
    """Whether one of several hosts runs all ops that it can run; device: of each op."""
    one = on_first_host(problem)
    return one is not None and bool(one.permitted[np.arange(problem.num_ops), device].all())


def group_time_us(problem: Problem) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the time of each colocation group on each device in us; inf if it may not run there.

    The result is `[num_groups, num_devices]`.
    """
    total = np.zeros((problem.graph.num_groups, problem.num_devices))
    np.add.at(total, problem.graph.colocation_group, problem.duration_us)
    return np.where(problem.group_allowed, total, np.inf)


def fastest_device(problem: Problem) -> IntArray:
    """Return the fastest device of each colocation group, `[num_groups]`; ties to the first."""
    fastest: IntArray = group_time_us(problem).argmin(axis=1)
    return fastest


def speeds(problem: Problem, devices: Sequence[int]) -> list[float]:
    """Return the speed of each device: steps in a second, if it ran all ops that it can run."""
    times_us = problem.duration_us[:, list(devices)]
    total_us = np.where(np.isfinite(times_us), times_us, 0.0).sum(axis=0)
    speed: list[float] = (1e6 / np.maximum(total_us, LEAST_US)).tolist()
    return speed


def differ(problem: Problem, devices: Sequence[int]) -> bool:
    """Whether some of these devices are faster than others."""
    return len(set(rounded(np.array(speeds(problem, devices))).tolist())) > 1
