"""From the devices of a plan to those of TensorFlow."""

import re
from collections.abc import Mapping, Sequence

from pesto_cli.cluster.names import tensorflow_name
from pesto_cli.errors import BadInputError

_TENSORFLOW = re.compile(r"(/job:\w+)?(/replica:\d+)?(/task:\d+)?/device:[A-Z_]+:\d+")


def parse_devices(text: str) -> dict[str, str]:
    """Parse `GPU:0=/device:CPU:0,GPU:1=/device:CPU:1`: planned devices and those at hand.

    An empty text maps none.

    Raises:
        BadInputError: an entry is not of that form, or maps a device again.
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
            raise BadInputError(f"device mapping: {planned} is mapped twice; drop one of them.")
        mapping[planned] = at_hand
    return mapping


def tensorflow_devices(
    planned: Sequence[str], used: set[int], devices: Mapping[str, str]
) -> dict[int, str]:
    """TensorFlow's name for every planned device that is used, by its index.

    Without a mapping, `GPU:0` stands for `/device:GPU:0`, and `worker:1/GPU:0`, device 0 of a task
    of a cluster, for `/job:worker/task:1/device:GPU:0`.

    Raises:
        BadInputError: the mapping names a device that is not planned, leaves out one that is used,
            or leads to what is no device; or a planned name stands for no device of TensorFlow.
    """
    for name in devices:
        if name not in planned:
            raise BadInputError(
                f"device mapping: {name!r} is no device of the placement; one of "
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
                f"device {name!r} would be TensorFlow's {at_hand!r}; a name such as /device:GPU:0 "
                f"was expected: map it with --devices {name}=/device:..."
            )
        found[index] = full
    return found


def device_type(device: str) -> str:
    """`GPU` for `/device:GPU:0`."""
    return device.rpartition("device:")[2].partition(":")[0]
