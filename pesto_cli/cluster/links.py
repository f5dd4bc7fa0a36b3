"""Links between the devices of a cluster, nominal until `pesto comm` has timed them.

Within a task every link has a queue of its own. Between two tasks of a host the sender's and the
receiver's core both copy, whichever of them sends: the two directions share one channel. What
leaves a host for others shares its network card, so these links name one channel a host. Cards send
and receive at once, so there the two directions do not share; that several senders may share the
card of one receiver is left out, as a link has one channel: of two hosts the sender's is the whole
truth.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pesto_cli.data.machine import CommModel, Device, Link

# The fits of the Pesto authors over PCIe, as in the preset v100x2-pcie.
HOST_TO_GPU = CommModel(latency_us=21.48, us_per_byte=7.81e-5)
GPU_TO_GPU = CommModel(latency_us=5.581, us_per_byte=1.0024e-4, min_us=15.0)
# gRPC over loopback between two processes on a core each of a two-core virtual machine.
LOOPBACK = CommModel(latency_us=110.0, us_per_byte=3e-4)
# The same latency, and a card of 10 Gbit/s.
NETWORK = CommModel(latency_us=110.0, us_per_byte=8e-4)
# A control edge: within a process, and over gRPC.
SIGNAL_WITHIN_US = 7.0
SIGNAL_BETWEEN_US = 110.0


@dataclass(frozen=True)
class Location:
    """Where a device is."""

    host: str
    task: str


def nominal_links(devices: list[Device], where: Mapping[str, Location]) -> tuple[Link, ...]:
    """A link for each ordered pair of devices; `where` they are goes by their names."""
    return tuple(
        _link(src, dst, where[src.name], where[dst.name])
        for src in devices
        for dst in devices
        if src is not dst
    )


def nominal_signal_us(where: Mapping[str, Location]) -> float:
    """Delay of a control edge between devices."""
    tasks = {location.task for location in where.values()}
    return SIGNAL_BETWEEN_US if len(tasks) > 1 else SIGNAL_WITHIN_US


def _link(src: Device, dst: Device, start: Location, end: Location) -> Link:
    if start.host != end.host:
        return Link(src.name, dst.name, NETWORK, channel=f"out of {start.host}")
    if start.task != end.task:
        return Link(src.name, dst.name, LOOPBACK, " and ".join(sorted((src.name, dst.name))))
    comm = GPU_TO_GPU if src.kind == dst.kind == "GPU" else HOST_TO_GPU
    return Link(src.name, dst.name, comm)
