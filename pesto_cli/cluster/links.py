"""Nominal links between the devices of a cluster, used until `pesto comm` has timed them.

Within a task, every link has its own channel (queue). Between two tasks of one host, the cores of
both tasks copy in either direction, so the two directions share one channel. All links from a host
to other hosts share its network card, so they have one channel per host. A card sends and receives
at the same time, so the two directions between hosts have different channels. A link has only one
channel, so contention of several senders for the card of one receiver is not modelled. With two
hosts there is no such contention.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pesto_cli.data.machine import CommModel, Device, Link

# The fits of the Pesto authors for PCIe, as in the preset v100x2-pcie.
HOST_TO_GPU = CommModel(latency_us=21.48, us_per_byte=7.81e-5)
GPU_TO_GPU = CommModel(latency_us=5.581, us_per_byte=1.0024e-4, min_us=15.0)
# gRPC over loopback between two processes, each on one core of a two-core virtual machine.
LOOPBACK = CommModel(latency_us=110.0, us_per_byte=3e-4)
# The same latency, with a network card of 10 Gbit/s.
NETWORK = CommModel(latency_us=110.0, us_per_byte=8e-4)
# Delay of a control edge within a process, and over gRPC.
SIGNAL_WITHIN_US = 7.0
SIGNAL_BETWEEN_US = 110.0


@dataclass(frozen=True)
class Location:
    """The host and the task of a device."""

    host: str
    task: str


def nominal_links(devices: list[Device], where: Mapping[str, Location]) -> tuple[Link, ...]:
    """Return a link for each ordered pair of devices; where: name of a device -> its location."""
    return tuple(
        _link(src, dst, where[src.name], where[dst.name])
        for src in devices
        for dst in devices
        if src is not dst
    )


def nominal_signal_us(where: Mapping[str, Location]) -> float:
    """Return the nominal delay of a control edge between devices."""
    tasks = {location.task for location in where.values()}
    return SIGNAL_BETWEEN_US if len(tasks) > 1 else SIGNAL_WITHIN_US


def _link(src: Device, dst: Device, start: Location, end: Location) -> Link:
    if start.host != end.host:
        return Link(src.name, dst.name, NETWORK, channel=f"out of {start.host}")
    if start.task != end.task:
        return Link(src.name, dst.name, LOOPBACK, " and ".join(sorted((src.name, dst.name))))
    comm = GPU_TO_GPU if src.kind == dst.kind == "GPU" else HOST_TO_GPU
    return Link(src.name, dst.name, comm)
