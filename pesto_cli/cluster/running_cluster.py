"""The cluster of a cluster file: TensorFlow servers that the user has started.

Sessions go to the first task of the first job.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from pesto_cli.cluster.backend import Opened
from pesto_cli.cluster.cluster_file import ClusterFile, is_cluster_file, read_cluster_file
from pesto_cli.cluster.connection import Connection
from pesto_cli.cluster.discovery import Found, found_devices, machine_of
from pesto_cli.cluster.hang_watch import HangWatch
from pesto_cli.cluster.hardware import Read, memory_bytes
from pesto_cli.cluster.names import task_of
from pesto_cli.cluster.task_watch import ATTEMPT_S, TaskWatch, unreachable
from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

log = logger(__name__)

# Pause between two attempts to reach the tasks, which may still be starting.
RETRY_S = 0.5


@dataclass(frozen=True)
class RunningCluster:
    """The servers of a cluster file."""

    file: ClusterFile

    environ: ClassVar[Mapping[str, str]] = {}

    @staticmethod
    def recognises(spec: str) -> bool:
        """Whether a spec is the path of a cluster file, judged by its content."""
        return is_cluster_file(spec)

    @classmethod
    def parse(cls, spec: str, *, open_ports: bool) -> "RunningCluster":
        """Read a cluster file; `open_ports` has no effect, as the servers run already.

        Raises:
            BadInputError: the file contains a mistake.
        """
        return cls(read_cluster_file(spec))

    def open(self, limit_s: float, on_loss: Callable[[str], NoReturn]) -> Opened:
        """Wait until all tasks answer and find their devices; see `Kind`."""
        deadline = time.monotonic() + limit_s
        address_of, warned = self.file.address_of, ""
        while (missing := unreachable(address_of)) and time.monotonic() + RETRY_S < deadline:
            if missing != warned:
                left_s = deadline - time.monotonic()
                log.warning("%s; waiting up to %.0f s (Ctrl-C to stop).", missing, left_s)
            warned = missing
            time.sleep(RETRY_S)
        if missing:
            raise EnvironmentFailedError(
                f"{missing} after {limit_s:.0f} s; a session needs every task of the cluster: "
                "start it there (pesto worker CLUSTER.toml --job JOB --task N), or correct its "
                "address."
            )
        watch = TaskWatch(address_of, on_loss)
        HangWatch(address_of, on_loss)
        target = "grpc://" + next(iter(address_of.values()))
        found = found_devices(target, max(ATTEMPT_S, deadline - time.monotonic()))
        return Opened(
            Connection(target, {each.name: each.full for each in found}, self.file.jobs),
            machine_of(found, self.file.host_of.__getitem__, self._memory_shares(target, found)),
            watch.check,
        )

    def _memory_shares(self, target: str, found: list[Found]) -> dict[str, int]:
        """Return task -> memory of its CPU device: an equal share of its host's memory."""
        num_tasks = Counter(self.file.host_of.values())
        shares = {}
        for each in found:
            if each.type == "CPU":
                task = task_of(each.name)
                host_bytes = memory_bytes(_reader_on(target, each.full))
                shares[task] = host_bytes // num_tasks[self.file.host_of[task]]
        return shares


def _reader_on(target: str, device: str) -> Read:
    """Return a function that reads files on the host of a device.

    It serves to find the memory of that host, which TensorFlow does not report.
    """
    tf = tensorflow()
    tf1 = tf.compat.v1

    def read(path: str) -> str:
        with tf1.Graph().as_default() as graph, tf.device(device):
            content = tf.io.read_file(path)
        try:
            with tf1.Session(target, graph=graph) as session:
                return str(session.run(content), "utf-8")
        except tf.errors.OpError as error:
            raise OSError(str(error)) from error

    return read
