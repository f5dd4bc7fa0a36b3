"""Names of devices: pesto's, and TensorFlow's in two lengths.

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
    """What a node's device is set to; None for what is no name of pesto's."""
    parts = _PESTO.fullmatch(name)
    if parts is None:
        return None
    task = f"/job:{parts['job']}/task:{parts['task']}" if parts["job"] else ""
    return f"{task}/device:{parts['device']}"


def pesto_name(full: str) -> str:
    """Pesto's name of a device that a session lists.

    Raises:
        BadInputError: it is not of TensorFlow's form.
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
    """A key that sorts names with their numbers as numbers."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))


def task_of(name: str) -> str:
    """`worker:0` of `worker:0/CPU:0`, and nothing of `GPU:0`."""
    return name.rpartition("/")[0]
