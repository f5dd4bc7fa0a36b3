"""Variants of a profile's machine: other memory sizes, compute speeds and interconnect speeds."""

from dataclasses import dataclass, replace

from pesto_cli.data.machine import CommModel, Machine
from pesto_cli.data.problem import Problem

GIB = 2**30


@dataclass(frozen=True)
class MachineVariant:
    """The differences of a run's machine from the machine of its profile.

    memory_gib: memory of every device except CPUs; None leaves it unchanged.
    compute_speed: factor for the speed of all devices (Pesto, Section 5.4).
    interconnect_speed: factor for the speed of all links, latency included.
    """

    memory_gib: float | None = None
    compute_speed: float = 1.0
    interconnect_speed: float = 1.0

    def applied(self, problem: Problem) -> Problem:
        """Return the same problem on this variant of its machine."""
        return replace(problem, machine=self._machine(problem.machine))

    def _machine(self, machine: Machine) -> Machine:
        devices = [
            replace(device, speed=device.speed * self.compute_speed) for device in machine.devices
        ]
        if self.memory_gib is not None:
            memory_bytes = round(self.memory_gib * GIB)
            devices = [
                device
                if machine.device_type(device.kind) == "CPU"
                else replace(device, memory_bytes=memory_bytes)
                for device in devices
            ]
        links = tuple(
            replace(link, comm=_faster(link.comm, self.interconnect_speed))
            for link in machine.links
        )
        return replace(machine, devices=tuple(devices), links=links)


def _faster(comm: CommModel, factor: float) -> CommModel:
    return replace(
        comm,
        latency_us=comm.latency_us / factor,
        us_per_byte=comm.us_per_byte / factor,
        min_us=comm.min_us / factor,
    )
