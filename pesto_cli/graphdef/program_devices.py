"""Read the devices that a program sets for its own ops, by `tf.device`."""

from collections.abc import Iterable

from pesto_cli.graphdef.tensorflow import tensorflow

LOCAL_JOB = "localhost"


def program_device(devices: Iterable[str]) -> str:
    """Return the devices on which a program places an op, as a shell pattern of pesto's names.

    devices: the `device` fields of the NodeDefs that the op stands for.

    `/device:GPU:0` becomes `GPU:0`, `/job:worker/task:1/cpu:0` becomes `worker:1/CPU:0`, and parts
    that are not given become `*`. The pattern is empty if no node has a device, or if the devices
    of the nodes differ.
    """
    patterns = {_pattern(device) for device in devices} - {""}
    return patterns.pop() if len(patterns) == 1 else ""


def device_type(pattern: str) -> str:
    """Return the device type in a pattern: `GPU` for `GPU:0`; `*` if the pattern has none."""
    return pattern.rpartition("/")[2].partition(":")[0]


def _pattern(device: str) -> str:
    try:
        spec = tensorflow().DeviceSpec.from_string(device)
    except ValueError:
        return device
    job = spec.job if spec.job != LOCAL_JOB else None
    parts = [f"{spec.device_type or '*'}:{_or_any(spec.device_index)}"]
    if job is not None:
        parts.insert(0, f"{job}:{_or_any(spec.task)}")
    pattern = "/".join(parts)
    return "" if pattern == "*:*" else pattern


def _or_any(number: int | None) -> str:
    return "*" if number is None else str(number)
