"""Device choices that several strategies use."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from pesto_cli.bounds.canonical import rounded
from pesto_cli.data.graph import BoolArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem

# Inside an island, a tensor of this size takes at most this share of its time on the slowest link.
ISLAND_SHARE, ISLAND_BYTES = 0.6, 2**24
LEAST_US = 1e-3
"""Shorter steps count as this long, so that the speed of a device without work is finite."""
# A placement uses a host that has at least this share of the work of the busiest host. A search on
# all hosts moves a few short ops to other hosts, although this gains nearly nothing.
LEAST_WORK_SHARE = 0.02


def accelerators(problem: Problem) -> list[int]:
    """Return the indices of the devices that are not CPUs, or of all devices if all are CPUs.

    A device on which no op may run is left out.
    """
    machine = problem.machine
    usable = np.flatnonzero(problem.allowed.any(axis=0) | (problem.num_ops == 0)).tolist()
    types = [machine.device_type(device.kind) for device in machine.devices]
    return [index for index in usable if types[index] != "CPU"] or usable


@cached_per_problem
def hosts_of_devices(problem: Problem) -> list[str]:
    """Return the name of the host of each device, `[num_devices]`.

    These devices share a host: those of one task, those whose hosts have the same name in the
    machine, and those from which all transfers to some other devices share one channel, a network
    card.
    """
    devices = problem.machine.devices
    named = {device.task: device.host for device in devices if device.host}
    alone = {device.name: named.get(device.task, device.task) for device in devices}
    ends = defaultdict[str, tuple[set[str], set[str]]](lambda: (set(), set()))
    for link in problem.machine.links:
        sources, destinations = ends[link.channel]
        sources.add(link.src)
        destinations.add(link.dst)
    host = {name: name for name in alone.values()}
    for channel, (sources, destinations) in ends.items():
        if channel and sources.isdisjoint(destinations):
            merged = {host[alone[name]] for name in sources}
            first = next(name for name in alone.values() if host[name] in merged)
            host = {name: host[first] if of in merged else of for name, of in host.items()}
    return [host[name] for name in alone.values()]


@cached_per_problem
def on_faster_hosts(problem: Problem) -> Problem | None:
    """Return the problem on the faster half of the hosts; if they are equal, on the first half.

    Groups that cannot be on these hosts keep all of their devices. None if the constraints permit
    ops on one host only, or if only one accelerator were left.
    """
    hosts, speed = hosts_of_devices(problem), defaultdict[str, float](float)
    usable = accelerators(problem)
    for device, each in zip(usable, speeds(problem, usable), strict=True):
        speed[hosts[device]] += each
    kept = sorted(speed, key=lambda host: -speed[host])[: len(speed) // 2]
    return on_devices(problem, np.isin(hosts, kept))


@cached_per_problem
def islands(problem: Problem) -> tuple[int, ...]:
    """Return the number of the island of each accelerator.

    An island is a group of accelerators of one host with fast links to each other. Islands are
    equally large, and contiguous in the order of the machine. The slowest link inside is compared
    with the slowest of all. Empty if there are no islands, or several hosts.
    """
    devices, hosts, machine = accelerators(problem), hosts_of_devices(problem), problem.machine
    if len({hosts[each] for each in devices}) > 1:
        return ()
    pairs = list(permutations(devices, 2))
    times_us = dict(zip(pairs, machine.transfers_us(ISLAND_BYTES, pairs), strict=True))
    for number in range(2, len(devices) // 2 + 1):
        if len(devices) % number == 0:
            island = np.repeat(np.arange(number), len(devices) // number).tolist()
            of = dict(zip(devices, island, strict=True))
            inside_us = max(times_us[pair] for pair in pairs if of[pair[0]] == of[pair[1]])
            if inside_us <= ISLAND_SHARE * max(times_us.values()):
                return tuple(island)
    return ()


def on_hosts_used(problem: Problem, device: IntArray) -> Problem | None:
    """Return the problem on the hosts that have most of the work of a placement.

    Groups that cannot be on these hosts keep all of their devices. None if the placement uses all
    hosts that it can use, or if only one accelerator were left.

    device: of each op, `[num_ops]`.
    """
    _, host = np.unique(hosts_of_devices(problem), return_inverse=True)
    time_us = problem.duration_us[np.arange(problem.num_ops), device]
    work_us = np.bincount(host[device], time_us, int(host.max()) + 1)
    used = work_us >= LEAST_WORK_SHARE * work_us.max()
    return on_devices(problem, used[host])


def on_devices(problem: Problem, here: BoolArray) -> Problem | None:
    """Return the problem on some devices.

    Groups that cannot be there keep all of their devices. None if this changes nothing, or if only
    one accelerator were left.

    here: whether to use each device, `[num_devices]`.
    """
    can_be_here = np.any(problem.group_allowed & here, axis=1)[problem.graph.colocation_group]
    permitted = problem.permitted & (here | ~can_be_here[:, None])
    if (permitted == problem.permitted).all() or here[accelerators(problem)].sum() < 2:
        return None
    return replace(problem, permitted=permitted)


def fastest_device(problem: Problem) -> IntArray:
    """Return the fastest device of each colocation group, `[num_groups]`; ties to the first."""
    fastest: IntArray = problem.group_time_us.argmin(axis=1)
    return fastest


def speeds(problem: Problem, devices: Sequence[int]) -> list[float]:
    """Return the speed of each device: how often it can run in a second what all of them can run.

    If no op can run on all devices, each device counts with the ops that it can run.
    """
    times_us = problem.duration_us[:, list(devices)]
    is_possible = np.isfinite(times_us)
    by_all = is_possible.all(axis=1, keepdims=True)
    counts = by_all if by_all.any() else is_possible
    total_us = np.where(counts, times_us, 0.0).sum(axis=0)
    speed: list[float] = (1e6 / np.maximum(total_us, LEAST_US)).tolist()
    return speed


def differ(problem: Problem, devices: Sequence[int]) -> bool:
    """Whether some of these devices are faster than others."""
    return len(set(rounded(np.array(speeds(problem, devices))).tolist())) > 1
