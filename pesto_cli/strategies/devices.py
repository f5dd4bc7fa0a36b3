"""Device choices that several strategies use."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pesto_cli.data.canonical import rounded
from pesto_cli.data.graph import BoolArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem

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
def on_faster_hosts(problem: Problem) -> Problem | None:
    """Return the problem on the faster half of the hosts; if they are equal, on the first half.

    Groups that cannot be on these hosts keep all of their devices. None if the constraints permit
    ops on one host only, or if only one accelerator were left.
    """
    hosts, speed = _computers(problem), defaultdict[str, float](float)
    usable = accelerators(problem)
    for device, each in zip(usable, speeds(problem, usable), strict=True):
        speed[hosts[device]] += each
    kept = sorted(speed, key=lambda host: -speed[host])[: len(speed) // 2]
    return _on_hosts(problem, np.isin(hosts, kept))


def on_hosts_used(problem: Problem, device: IntArray) -> Problem | None:
    """Return the problem on the hosts of a placement.

    Groups that cannot be on these hosts keep all of their devices. None if the placement uses all
    hosts that it can use, or if only one accelerator were left.

    device: of each op, `[num_ops]`.
    """
    hosts = _computers(problem)
    return _on_hosts(problem, np.isin(hosts, hosts[device]))


def _computers(problem: Problem) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Return the name of the computer of each device, `[num_devices]`.

    Workers of one computer have the same name, because all links between them are equally fast.
    """
    devices = problem.machine.devices
    names = zip(devices, hosts_of_devices(problem), strict=True)
    return np.array([device.host or task for device, task in names])


def _on_hosts(problem: Problem, here: BoolArray) -> Problem | None:
    """Return the problem on the devices of some hosts; see `on_hosts_used`.

    here: `[num_devices]`.
    """
    can_be_here = np.any(problem.group_allowed & here, axis=1)[problem.graph.colocation_group]
    permitted = problem.permitted & (here | ~can_be_here[:, None])
    if (permitted == problem.permitted).all() or here[accelerators(problem)].sum() < 2:
        return None
    return replace(problem, permitted=permitted)


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
