"""The descriptions of device kinds by which parts are priced."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pesto_cli.data.machine import DeviceKind, Machine
from pesto_cli.data.presets import V100, XEON_4116
from pesto_cli.profile.analytic.kinds import described_kinds

# Real devices of TensorFlow have these kinds, and no description.
STAND_INS: Mapping[str, tuple[DeviceKind, str]] = {
    "CPU": (XEON_4116, "a Xeon Silver 4116"),
    "GPU": (V100, "a V100"),
}
REMEDY = "or profile without --parts"


def kinds_of_parts(machine: Machine) -> dict[str, DeviceKind]:
    """Return a description of each kind of the machine; see `notes` for missing ones.

    Raises:
        BadInputError: a kind is not described, and is none of TensorFlow's device types.
    """
    stand_ins = {name: kind for name, (kind, _) in STAND_INS.items()}
    return described_kinds(replace(machine, kinds={**stand_ins, **machine.kinds}), REMEDY)


def stand_in_notes(machine: Machine) -> Iterator[str]:
    """Yield a note on each kind that the machine does not describe."""
    for name in dict.fromkeys(device.kind for device in machine.devices):
        if name not in machine.kinds and name in STAND_INS:
            yield (
                f"the machine does not describe the kind {name!r}: the times of parts, as shares "
                f"of whole ops, and of added ops are those of {STAND_INS[name][1]}; describe the "
                "kind in a machine file to correct them."
            )
