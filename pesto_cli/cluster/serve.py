"""A task of a cluster file, started by hand on its host."""

import signal
import socket
from pathlib import Path

from pesto_cli.cluster.cluster_file import read_cluster_file, split
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

log = logger(__name__)


def serve(path: Path | str, task: int, job: str = "worker") -> None:
    """Be a task of a cluster until Ctrl-C or another signal ends this process.

    Whoever can reach its port can run programs as this user: TensorFlow's server listens on every
    interface and asks nobody who they are.

    Raises:
        BadInputError: the file is not as it should be, or has no such task.
        EnvironmentFailedError: the port is taken.
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
        raise EnvironmentFailedError(f"{name} does not start at {address}: {error}.") from None
    log.warning(
        "%s listens on port %d of every interface and runs whatever it is sent; keep strangers "
        "out. Ctrl-C ends it.",
        name,
        split(address)[1],
    )
    # It waits outside of Python, which would handle the signal only when it is back.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    server.join()


def _check_port(name: str, address: str) -> None:
    """TensorFlow only says that it could not start."""
    port = split(address)[1]
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError as error:
        raise EnvironmentFailedError(
            f"{name} cannot listen on port {port}: {error.strerror}; a free port was expected: end "
            "what listens there, or give the task another port in the cluster file."
        ) from None
