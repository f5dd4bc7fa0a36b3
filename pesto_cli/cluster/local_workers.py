"""The cluster `local-workers:N`: TensorFlow servers on this host, each with a core and a device.

Tensors between them are serialised and sent over loopback, as over a network. So every computer can
serve as a machine with several devices.
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
from pesto_cli.cluster.hang_watch import HangWatch
from pesto_cli.cluster.hardware import memory_bytes
from pesto_cli.cluster.isolation import leave_network
from pesto_cli.cluster.names import task_of
from pesto_cli.cluster.processes import die_with
from pesto_cli.cluster.workers import JOB, Watch, free_ports, start_workers
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

log = logger(__name__)

PREFIX = "local-workers"
MAX_WORKERS = 64
KEPT_BYTES = 2**36


@dataclass(frozen=True)
class LocalWorkers:
    """`count` workers in an isolated network, or with `open_ports` in the network of the host."""

    count: int
    open_ports: bool = False

    @staticmethod
    def recognises(spec: str) -> bool:
        """Whether a spec is of this kind; it may contain a mistake."""
        return spec.partition(":")[0] == PREFIX

    @classmethod
    def parse(cls, spec: str, *, open_ports: bool) -> "LocalWorkers":
        """Parse `local-workers:N`.

        Raises:
            BadInputError: N is not a valid number of workers.
        """
        count = re.fullmatch(rf"{PREFIX}:(\d{{1,4}})", spec)
        if count is None or not 1 <= int(count[1]) <= MAX_WORKERS:
            raise BadInputError(
                f"machine {spec!r}: a number of workers from 1 to {MAX_WORKERS} was expected, as "
                f"in {PREFIX}:2."
            )
        cores = len(os.sched_getaffinity(0))
        if int(count[1]) > cores:
            log.warning("%s share %d cores, so some wait while others run.", spec, cores)
        return cls(int(count[1]), open_ports)

    @property
    def environ(self) -> Mapping[str, str]:
        """Environment variables of the client and its workers.

        Libraries start no threads, because only a process with one thread can be forked. GPUs are
        hidden, because `local-gpus` is the cluster for them. The process keeps freed memory, as a
        GPU's allocator does: by default glibc returns blocks of more than 32 MB to the system, and
        then page faults lengthen a transfer of 64 MB by half. oneDNN is off: it fuses ops whatever
        the settings of a session are.
        """
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        thresholds = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
        return {
            **dict.fromkeys(threads, "1"),
            **dict.fromkeys(thresholds, str(KEPT_BYTES)),
            "MALLOC_ARENA_MAX": "1",  # further arenas cannot hold large blocks
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
        addresses = [f"127.0.0.1:{port}" for port in ports]
        watch = Watch(workers, on_loss)
        names = (worker.name for worker in workers)
        HangWatch(dict(zip(names, addresses, strict=True)), on_loss)
        target = f"grpc://{addresses[0]}"
        found = found_devices(target, deadline - time.monotonic())
        shares = {task_of(each.name): memory_bytes() // self.count for each in found}
        return Opened(
            Connection(
                target,
                {each.name: each.full for each in found},
                {JOB: addresses},
            ),
            machine_of(found, lambda task: "here", shares),
            watch.wait_for_end,
        )


def client_core(cores: list[int], num_workers: int) -> int:
    """Return the core of the client: one without a worker, else that of the first worker.

    The first worker runs the session's master. While the master is busy, the client waits for it,
    so the two do not compete for the core.
    """
    return cores[num_workers] if num_workers < len(cores) else cores[0]
