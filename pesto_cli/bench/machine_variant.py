"""Variants of a profile's machine: other memory sizes, compute speeds and interconnect speeds."""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from pesto_cli.data.machine import CommModel, Device, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem

GIB = 2**30


@dataclass(frozen=True)
class MachineVariant:
    """The differences of a run's machine from the machine of its profile.

    preset: another machine, with device kinds of the profile.
    num_gpus: how many GPUs are used, the first ones; None for all.
    gpus_of_host: how many GPUs of each host are used, the first ones; None for all.
    memory_gib: memory of every device except CPUs; None leaves it unchanged.
    compute_speed: factor for the speed of all devices (Pesto, Section 5.4).
    interconnect_speed: factor for the speed of all links, latency included.
    """

    preset: str = ""
    num_gpus: int | None = None
    gpus_of_host: int | None = None
    memory_gib: float | None = None
    compute_speed: float = 1.0
    interconnect_speed: float = 1.0

    @property
    def changes(self) -> tuple[str, ...]:
        """The differences as text; of the preset only if it is used as a whole."""
        is_part = self.num_gpus is not None or self.gpus_of_host is not None
        texts = (
            "" if is_part else self.preset,
            "" if self.num_gpus is None else f"{self.num_gpus} GPUs",
            "" if self.gpus_of_host is None else f"{self.gpus_of_host} GPUs of each host",
            "" if self.memory_gib is None else f"{self.memory_gib:g} GB",
            "" if self.compute_speed == 1 else f"compute {self.compute_speed:g}x",
            "" if self.interconnect_speed == 1 else f"links {self.interconnect_speed:g}x",
        )
        return tuple(filter(None, texts))

    def applied(self, problem: Problem) -> Problem:
        """Return the same problem on this variant of its machine."""
        machine = PRESETS[self.preset] if self.preset else problem.machine
        if self.gpus_of_host is not None or self.num_gpus is not None:
            machine = with_gpus(machine, self.num_gpus, self.gpus_of_host)
        permitted = problem.permitted
        if machine is not problem.machine:
            permitted = np.ones((problem.num_ops, machine.num_devices), dtype=np.bool_)
        return replace(problem, machine=self._machine(machine), permitted=permitted)

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


def with_gpus(machine: Machine, num_gpus: int | None, of_host: int | None = None) -> Machine:
    """Return a machine with its first GPUs, and with the CPUs of their hosts.

    num_gpus: of the machine; None for all. of_host: at most so many of each host; None for all.
    """
    cpus, gpus_of = list[Device](), defaultdict[str, list[Device]](list)
    for device in machine.devices:
        is_cpu = machine.device_type(device.kind) == "CPU"
        (cpus if is_cpu else gpus_of[device.task]).append(device)
    gpus = [gpu for each in gpus_of.values() for gpu in each[:of_host]][:num_gpus]
    tasks = {gpu.task for gpu in gpus}
    names = {device.name for device in (*gpus, *(cpu for cpu in cpus if cpu.task in tasks))}
    return replace(
        machine,
        devices=tuple(device for device in machine.devices if device.name in names),
        links=tuple(link for link in machine.links if {link.src, link.dst} <= names),
    )


def _faster(comm: CommModel, factor: float) -> CommModel:
    return replace(
        comm,
        latency_us=comm.latency_us / factor,
        us_per_byte=comm.us_per_byte / factor,
        min_us=comm.min_us / factor,
    )
