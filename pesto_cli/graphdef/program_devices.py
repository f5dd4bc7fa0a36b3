"""Devices that a program gives its ops itself, by `tf.device`."""

from collections.abc import Iterable

from pesto_cli.graphdef.tensorflow import tensorflow

LOCAL_JOB = "localhost"


def program_device(devices: Iterable[str]) -> str:
    """Return where a program puts an op, as a shell pattern of pesto's names of devices.

    devices: of the nodes that the op stands for, as they are in a GraphDef.

    `/device:GPU:0` is `GPU:0`, `/job:worker/task:1/cpu:0` is `worker:1/CPU:0`; what is left open is
    `*`. Empty if the program says nothing, or not the same of all nodes.
    """
    patterns = {_pattern(device) for device in devices} - {""}
    return patterns.pop() if len(patterns) == 1 else ""


def device_type(pattern: str) -> str:
    """`GPU` of `GPU:0`, and `*` where it is left open."""
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
