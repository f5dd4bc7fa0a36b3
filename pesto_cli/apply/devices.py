"""Map the devices of a placement to those of TensorFlow."""

import re
from collections.abc import Mapping, Sequence

from pesto_cli.cluster.names import tensorflow_name
from pesto_cli.errors import BadInputError

_TENSORFLOW = re.compile(r"(/job:\w+)?(/replica:\d+)?(/task:\d+)?/device:[A-Z_]+:\d+")


def parse_devices(text: str) -> dict[str, str]:
    """Return {planned device: TensorFlow device} from `GPU:0=/device:CPU:0,GPU:1=/device:CPU:1`.

    An empty text results in an empty mapping.

    Raises:
        BadInputError: an entry is not of this form, or a device is mapped twice.
    """
    mapping: dict[str, str] = {}
    for entry in text.split(",") if text.strip() else ():
        planned, equals, at_hand = (part.strip() for part in entry.partition("="))
        if not (planned and equals and at_hand):
            raise BadInputError(
                f"device mapping {entry!r}: PLANNED=TENSORFLOW was expected, as in "
                "GPU:0=/device:CPU:0,GPU:1=/device:CPU:1."
            )
        if planned in mapping:
            raise BadInputError(
                f"device mapping: {planned} is mapped twice; remove one of the entries."
            )
        mapping[planned] = at_hand
    return mapping


def tensorflow_devices(
    planned: Sequence[str], used: set[int], devices: Mapping[str, str]
) -> dict[int, str]:
    """Return TensorFlow's name for every planned device that is used: {index: name}.

    By default, `GPU:0` becomes `/device:GPU:0`, and `worker:1/GPU:0`, device 0 of a task of a
    cluster, becomes `/job:worker/task:1/device:GPU:0`.

    planned: names of the devices of the placement.
    used: indices of those with ops.
    devices: planned device -> TensorFlow device; may be empty.

    Raises:
        BadInputError: the mapping has an unknown planned device, lacks one that is used, or has a
            value that is not a device; or a planned name does not denote a TensorFlow device.
    """
    for name in devices:
        if name not in planned:
            raise BadInputError(
                f"device mapping: {name!r} is not a device of the placement; one of "
                f"{', '.join(planned)} was expected."
            )
    found = {}
    for index in sorted(used):
        name = planned[index]
        if devices and name not in devices:
            raise BadInputError(
                f"device mapping: {name} has ops, but is not mapped; all of "
                f"{', '.join(planned[i] for i in sorted(used))} were expected: add "
                f"{name}=/device:..."
            )
        at_hand = devices.get(name, name)
        full = tensorflow_name(at_hand) or at_hand
        if not _TENSORFLOW.fullmatch(full):
            raise BadInputError(
                f"device {name!r} is mapped to {at_hand!r}, which is not a TensorFlow device; a "
                "name such as /device:GPU:0 was expected: map it with `pesto apply --devices "
                f"{name}=/device:...`."
            )
        found[index] = full
    return found


def device_type(device: str) -> str:
    """Return the type of a TensorFlow device: `GPU` for `/device:GPU:0`."""
    return device.rpartition("device:")[2].partition(":")[0]


def of_placement(devices: Mapping[str, str], planned: Sequence[str]) -> dict[str, str]:
    """Return the mapping of the devices that a placement has."""
    return {name: devices[name] for name in planned if name in devices}
