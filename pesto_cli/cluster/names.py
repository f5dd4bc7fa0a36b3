"""Convert names of devices: pesto's, TensorFlow's short ones and TensorFlow's full ones.

worker:0/CPU:0   /job:worker/task:0/device:CPU:0   /job:worker/replica:0/task:0/device:CPU:0
GPU:0            /device:GPU:0                     /job:localhost/replica:0/task:0/device:GPU:0
"""

import re

from pesto_cli.errors import BadInputError

# TensorFlow's name of the job of a session that runs in its own process.
LOCAL_JOB = "localhost"

_PESTO = re.compile(r"(?:(?P<job>\w+):(?P<task>\d+)/)?(?P<device>[A-Z_]+:\d+)")
_FULL = re.compile(
    r"/job:(?P<job>\w+)/replica:\d+/task:(?P<task>\d+)/device:(?P<device>[A-Z_]+:\d+)"
)


def tensorflow_name(name: str) -> str | None:
    """Return TensorFlow's short name, for the device of a node; None if `name` is not pesto's."""
    parts = _PESTO.fullmatch(name)
    if parts is None:
        return None
    task = f"/job:{parts['job']}/task:{parts['task']}" if parts["job"] else ""
    return f"{task}/device:{parts['device']}"


def pesto_name(full: str) -> str:
    """Return pesto's name of a device from TensorFlow's full name.

    Raises:
        BadInputError: `full` is not a full name of TensorFlow.
    """
    parts = _FULL.fullmatch(full)
    if parts is None:
        raise BadInputError(
            f"TensorFlow lists a device {full!r}; a name such as "
            "/job:worker/replica:0/task:0/device:CPU:0 was expected."
        )
    task = "" if parts["job"] == LOCAL_JOB else f"{parts['job']}:{parts['task']}/"
    return task + parts["device"]


def number_parts(name: str) -> tuple[str | int, ...]:
    """Return a sort key that compares numbers in names as numbers."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))


def task_of(name: str) -> str:
    """Return the task of a device: `worker:0` for `worker:0/CPU:0`, and "" for `GPU:0`."""
    return name.rpartition("/")[0]
