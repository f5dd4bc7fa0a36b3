"""Run one task of a cluster file on this host: `pesto worker`."""

import signal
import socket
from pathlib import Path

from pesto_cli.cluster.cluster_file import read_cluster_file, split
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

log = logger(__name__)


def serve(path: Path | str, task: int, job: str = "worker") -> None:
    """Run a TensorFlow server as a task of a cluster until a signal such as Ctrl-C ends it.

    Anyone who can reach its port can run programs as this user: TensorFlow's server listens on
    every network interface, without authentication.

    Raises:
        BadInputError: the file contains a mistake, or has no such task.
        EnvironmentFailedError: the port is in use.
    """
    file = read_cluster_file(path)
    name = f"{job}:{task}"
    if name not in file.address_of:
        raise BadInputError(
            f"{path} has no task {name}; one of {', '.join(file.address_of)} was expected."
        )
    address = file.address_of[name]
    _check_port(name, address)
    tf = tensorflow()
    try:
        server = tf.distribute.Server(dict(file.jobs), job_name=job, task_index=task)
    except tf.errors.OpError as error:
        raise EnvironmentFailedError(f"{name} cannot start at {address}: {error}.") from None
    log.warning(
        "%s listens on port %d of every network interface and runs any graph that it receives; "
        "allow only trusted hosts to reach it. Ctrl-C ends it.",
        name,
        split(address)[1],
    )
    # join() waits in C++, and a Python signal handler would only run after its return.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    server.join()


def _check_port(name: str, address: str) -> None:
    """Check that the port is free: TensorFlow's error would not give the reason."""
    port = split(address)[1]
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError as error:
        raise EnvironmentFailedError(
            f"{name} cannot listen on port {port}: {error.strerror}; a free port was expected: end "
            "the process that listens there, or give the task another port in the cluster file."
        ) from None
