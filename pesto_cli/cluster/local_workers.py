"""`local-workers:N`: TensorFlow servers on this host, a core and a device each.

What one sends another is serialised and goes over loopback as it would over a network, so they are
a machine of several devices that everybody has.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from pesto_cli.cluster.backend import Opened
from pesto_cli.cluster.connection import Connection
from pesto_cli.cluster.discovery import found_devices, machine_of
from pesto_cli.cluster.hardware import memory_bytes
from pesto_cli.cluster.isolation import leave_network
from pesto_cli.cluster.names import task_of
from pesto_cli.cluster.processes import die_with
from pesto_cli.cluster.workers import Watch, free_ports, start_workers
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

log = logger(__name__)

PREFIX = "local-workers"
MAX_WORKERS = 64
KEPT_BYTES = 2**36


@dataclass(frozen=True)
class LocalWorkers:
    """So many workers, in a network of their own, or with `open_ports` in that of the host."""

    count: int
    open_ports: bool = False

    @staticmethod
    def recognises(spec: str) -> bool:
        """Whether a spec is of this kind, if perhaps with a mistake in it."""
        return spec.partition(":")[0] == PREFIX

    @classmethod
    def parse(cls, spec: str, *, open_ports: bool) -> "LocalWorkers":
        """What `local-workers:N` stands for.

        Raises:
            BadInputError: N is no number of workers.
        """
        count = re.fullmatch(rf"{PREFIX}:(\d{{1,4}})", spec)
        if count is None or not 1 <= int(count[1]) <= MAX_WORKERS:
            raise BadInputError(
                f"machine {spec!r}: a number of workers from 1 to {MAX_WORKERS} was expected, as "
                f"in {PREFIX}:2."
            )
        cores = len(os.sched_getaffinity(0))
        if int(count[1]) > cores:
            log.warning("%s share %d cores: some wait while others run.", spec, cores)
        return cls(int(count[1]), open_ports)

    @property
    def environ(self) -> Mapping[str, str]:
        """One thread, as only then a process can be forked; no GPU, which is another kind.

        Freed memory is kept, as a GPU's allocator keeps it. By default glibc returns what is larger
        than 32 MB, and then a transfer of 64 MB takes half as long again, for page faults. oneDNN
        would fuse ops whatever a session's settings say.
        """
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        thresholds = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
        return {
            **dict.fromkeys(threads, "1"),
            **dict.fromkeys(thresholds, str(KEPT_BYTES)),
            "MALLOC_ARENA_MAX": "1",  # others cannot hold large blocks
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_ENABLE_ONEDNN_OPTS": "0",
        }

    def open(self, limit_s: float, on_loss: Callable[[str], NoReturn]) -> Opened:
        """Start the workers; see `Kind`."""
        cores = sorted(os.sched_getaffinity(0))
        if not self.open_ports:
            parent = os.getppid()
            leave_network()
            die_with(parent)
        os.sched_setaffinity(0, {client_core(cores, self.count)})
        tensorflow()
        deadline = time.monotonic() + limit_s
        ports = free_ports(self.count)
        placed_on = [cores[task % len(cores)] for task in range(self.count)]
        workers = start_workers(ports, placed_on, limit_s)
        watch = Watch(workers, on_loss)
        target = f"grpc://127.0.0.1:{ports[0]}"
        found = found_devices(target, deadline - time.monotonic())
        shares = {task_of(each.name): memory_bytes() // self.count for each in found}
        return Opened(
            Connection(target, {each.name: each.full for each in found}),
            machine_of(found, lambda task: "here", shares),
            watch.give_it_time,
        )


def client_core(cores: list[int], num_workers: int) -> int:
    """A core that no worker has, or else that of the first worker.

    It runs the session's master, for which the client waits: the two are not busy at once.
    """
    return cores[num_workers] if num_workers < len(cores) else cores[0]
