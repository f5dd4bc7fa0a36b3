"""Find the devices of a cluster, and make a `Machine` of them."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pesto_cli.cluster.links import Location, nominal_links, nominal_signal_us
from pesto_cli.cluster.names import number_parts, pesto_name, task_of
from pesto_cli.data.machine import Device, Machine
from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

log = logger(__name__)

# After this time a warning names the server that does not answer. Sessions open in under a second.
SILENT_S = 5.0


@dataclass(frozen=True)
class Found:
    """A device of a session.

    name: pesto's name. full: TensorFlow's full name. limit_bytes: TensorFlow's memory limit, which
    means nothing for a CPU.
    """

    name: str
    full: str
    type: str
    limit_bytes: int


def found_devices(target: str, limit_s: float) -> list[Found]:
    """Return the devices at a session target, sorted by job, task, type and number.

    Raises:
        EnvironmentFailedError: the target does not answer within the time limit. A thread that
            waits for ever is then left behind.
    """
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default() as graph:
        nothing = tf1.no_op()
    config = tf1.ConfigProto()
    config.gpu_options.allow_growth = True
    session = tf1.Session(target, graph=graph, config=config)
    # If a task is missing, the first call waits for ever, whatever the options. session.run() at
    # least lets other threads run meanwhile, which list_devices() does not.
    _within(limit_s, target, lambda: session.run(nothing))
    with session:
        found = [
            Found(pesto_name(each.name), each.name, each.device_type, each.memory_limit_bytes)
            for each in session.list_devices()
        ]
    return sorted(found, key=lambda each: number_parts(each.name))


def _within(limit_s: float, target: str, first_call: Callable[[], Any]) -> None:
    failures: list[Exception] = []

    def run() -> None:
        try:
            first_call()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(min(SILENT_S, limit_s))
    if thread.is_alive() and limit_s > SILENT_S:
        left_s = limit_s - SILENT_S
        log.warning("no answer yet from TensorFlow at %s: waiting up to %.0f s.", target, left_s)
        thread.join(left_s)
    if thread.is_alive() or failures:
        said = str(failures[0]).splitlines()[0] if failures else f"no answer in {limit_s:.0f} s"
        raise EnvironmentFailedError(
            f"TensorFlow cannot open a session at {target or 'its own devices'}: {said}; all tasks "
            "of the cluster, with this version of TensorFlow, were expected to run: start them "
            "again."
        )


def machine_of(
    found: list[Found], host_of: Callable[[str], str], cpu_bytes: Mapping[str, int]
) -> Machine:
    """Return a machine with these devices and nominal links.

    Args:
        found: the devices.
        host_of: task -> its host.
        cpu_bytes: task -> memory of its CPU device.
    """
    devices, where = [], {}
    for each in found:
        task = task_of(each.name)
        num_bytes = cpu_bytes[task] if each.type == "CPU" else each.limit_bytes
        where[each.name] = Location(host_of(task), task)
        devices.append(Device(each.name, each.type, num_bytes, host=host_of(task)))
    return Machine(tuple(devices), nominal_links(devices, where), nominal_signal_us(where))
