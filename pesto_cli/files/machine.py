"""The file format of machines, in TOML and within a profile."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from pesto_cli.data.machine import (
    MAX_MEMORY_BYTES,
    CommModel,
    Device,
    DeviceKind,
    Efficiency,
    Link,
    Machine,
)
from pesto_cli.data.presets import PRESETS
from pesto_cli.errors import BadInputError, about, did_you_mean
from pesto_cli.files.storage import Schema, read_toml, validate

Finite = Annotated[float, Field(allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _DeviceSchema(Schema):
    name: str
    kind: str
    memory_bytes: int = Field(le=MAX_MEMORY_BYTES)
    speed: float = 1.0
    op_overhead_us: float = 0.0
    host: str = ""


class _LinkSchema(Schema):
    src: str
    dst: str
    latency_us: float
    us_per_byte: float
    min_us: float = 0.0
    sender_us: float = 0.0
    sender_us_per_byte: float = 0.0
    receiver_us: float = 0.0
    receiver_us_per_byte: float = 0.0
    wait_us: float = 0.0
    channel: str | None = None


class _EfficiencySchema(Schema):
    arithmetic: float = Field(1.0, gt=0, lt=1e3)
    memory: float = Field(1.0, gt=0, lt=1e3)
    start_us: NonNegative = 0.0


class _KindSchema(Schema):
    type: Literal["CPU", "GPU"]
    frequency_mhz: int = Field(gt=0, lt=2**31)
    num_cores: int = Field(gt=0, lt=2**31)
    bandwidth_gb_s: float = Field(gt=0, lt=1e9)
    architecture: str = ""
    launch_us: NonNegative = 0.0
    no_launch_us: NonNegative = 0.0
    efficiency: dict[str, _EfficiencySchema] = {}

    def value(self) -> DeviceKind:
        """Return the device kind."""
        reached = {key: Efficiency(**each.model_dump()) for key, each in self.efficiency.items()}
        return DeviceKind(**self.model_dump(exclude={"efficiency"}), efficiency=reached)


class MachineSchema(Schema):
    """A machine, in a TOML file or in a profile."""

    model_config = ConfigDict(title="pesto-machine")

    signal_us: float = 7.0
    step_overhead_us: float = 0.0
    devices: list[_DeviceSchema]
    links: list[_LinkSchema] = []
    kinds: dict[str, _KindSchema] = {}
    contention: dict[str, dict[str, float]] = {}

    def value(self) -> Machine:
        """Return the machine; `Machine` checks its own rules."""
        return Machine(
            devices=tuple(Device(**device.model_dump()) for device in self.devices),
            links=tuple(
                Link(
                    link.src,
                    link.dst,
                    CommModel(**link.model_dump(exclude={"src", "dst", "channel"})),
                    link.channel or "",
                )
                for link in self.links
            ),
            signal_us=self.signal_us,
            step_overhead_us=self.step_overhead_us,
            kinds={name: kind.value() for name, kind in self.kinds.items()},
            contention=self.contention,
        )


def machine_json(machine: Machine) -> dict[str, Any]:
    """Return a machine in the form that `MachineSchema` reads."""
    return {
        "signal_us": machine.signal_us,
        "step_overhead_us": machine.step_overhead_us,
        "devices": [_fields(device, "host") for device in machine.devices],
        "links": [
            {
                "src": link.src,
                "dst": link.dst,
                **asdict(link.comm),
                **({"channel": link.channel} if link.channel else {}),
            }
            for link in machine.links
        ],
        "kinds": {name: _fields(kind, "efficiency") for name, kind in machine.kinds.items()},
        **({"contention": machine.contention} if machine.contention else {}),
    }


def _fields(value: Device | DeviceKind, optional: str) -> dict[str, Any]:
    """Return the fields of a value, without an optional one that is empty."""
    return {name: each for name, each in asdict(value).items() if name != optional or each}


def read_machine(name: str, *others: str) -> Machine:
    """Return a preset, or read a machine file (TOML with the fields of a profile's `machine`).

    Args:
        name: name of a preset, or path of a file.
        others: other names that the caller accepts, for the error message.

    Raises:
        BadInputError: the name is neither a preset nor a readable machine file.
    """
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if not path.exists():
        raise BadInputError(
            f"machine {name!r} is no preset and no file; one of {', '.join([*PRESETS, *others])}, "
            f"or the path of a TOML file, was expected.{did_you_mean(name, [*PRESETS, *others])}"
        )
    content = read_toml(path)
    if not content:
        raise BadInputError(
            f"{path} has no entry; a machine was expected: [[devices]] with name, kind and "
            "memory_bytes, and, from each device to each other, [[links]] with src, dst, "
            "latency_us and us_per_byte."
        )
    parsed = validate(path, content, MachineSchema)
    with about(path):
        return parsed.value()
