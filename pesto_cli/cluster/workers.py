"""Start TensorFlow servers as child processes of the client, and watch them.

The client imports TensorFlow and then forks the workers, so that the import, which takes seconds,
is done once. A process with one thread can be forked safely, and TensorFlow starts no thread before
its first session or server.
"""

import contextlib
import os
import select
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import BinaryIO, NoReturn, cast

from pesto_cli.cluster.processes import REMEDY, die_with, how_it_ended, last_lines
from pesto_cli.cluster.time_slices import shorten_time_slices
from pesto_cli.errors import EnvironmentFailedError, with_words
from pesto_cli.graphdef.tensorflow import tensorflow

JOB = "worker"
UP = b"1"


@dataclass(frozen=True)
class Worker:
    """A server process.

    stderr: the file with its output. ready: descriptor to which it writes `UP` once it listens.
    """

    name: str
    pid: int
    stderr: BinaryIO
    ready: int

    def end_report(self) -> str:
        """Wait for the end of the process; return how it ended, with its last output."""
        _, status = os.waitpid(self.pid, 0)
        how = how_it_ended(os.waitstatus_to_exitcode(status))
        output = last_lines(self.stderr)
        return f"{self.name} (process {self.pid}) {how}. Its last output:\n{output}"


def free_ports(count: int) -> list[int]:
    """Return free ports of the loopback interface."""
    with contextlib.ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def start_workers(ports: Sequence[int], cores: Sequence[int], limit_s: float) -> list[Worker]:
    """Start a worker for each port, each on its core, and wait until all listen.

    The caller has imported TensorFlow, but not used it.

    Raises:
        EnvironmentFailedError: a worker ends or does not listen in time; the message has its last
            output.
    """
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        raise EnvironmentFailedError(
            f"local-workers: TensorFlow started {threads - 1} threads when it was imported; none "
            "was expected, as this process is forked: use the version that pesto requires."
        )
    addresses = [f"127.0.0.1:{port}" for port in ports]
    workers = [_fork(addresses, task, core) for task, core in enumerate(cores)]
    deadline = time.monotonic() + limit_s
    starting = {worker.ready: worker for worker in workers}
    while starting:
        readable = cast(list[int], wait(list(starting), max(0.0, deadline - time.monotonic())))
        if not readable:
            late = next(iter(starting.values()))
            raise with_words(
                EnvironmentFailedError,
                f"{late.name} (process {late.pid}) does not listen after {limit_s:.0f} s. It wrote:"
                f"\n{last_lines(late.stderr)}\nTry again when the machine is less busy.",
            )
        for descriptor in readable:
            worker = starting.pop(descriptor)
            if os.read(descriptor, 1) != UP:
                words = f"{worker.end_report()}\nTry again; its port was free."
                raise with_words(EnvironmentFailedError, words)
            os.close(descriptor)
    return workers


def _fork(addresses: list[str], task: int, core: int) -> Worker:
    stderr = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  as long as the worker
    ready, up = os.pipe()
    client = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            die_with(client)
            os.dup2(stderr.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            _serve(addresses, task, core, up)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    os.close(up)
    return Worker(f"{JOB}:{task}", pid, stderr, ready)


def _serve(addresses: list[str], task: int, core: int, up: int) -> NoReturn:
    tf = tensorflow()
    os.sched_setaffinity(0, {core})
    shorten_time_slices()
    # Control inputs make ops run one at a time. The second thread between ops serves tensors: with
    # one thread, a worker that computes serves none, and two workers are as slow as one.
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=2
    )
    server = tf.distribute.Server({JOB: addresses}, job_name=JOB, task_index=task, config=config)
    os.write(up, UP)
    os.close(up)
    server.join()
    raise SystemExit("the server ended by itself")


class Watch:
    """Waits in a thread for the end of any worker, and then calls `on_loss` at once.

    Without it, a call to TensorFlow may wait for ever for a worker that is gone, or fail with a
    message that does not name the worker.
    """

    def __init__(self, workers: Sequence[Worker], on_loss: Callable[[str], NoReturn]) -> None:
        self._workers = {os.pidfd_open(worker.pid): worker for worker in workers}
        self._on_loss = on_loss
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        poll = select.poll()
        for descriptor in self._workers:
            poll.register(descriptor, select.POLLIN)
        descriptor, _ = poll.poll()[0]
        self._on_loss(f"{self._workers[descriptor].end_report()}\n{REMEDY}")

    def wait_for_end(self) -> None:
        """Wait 2 s for the end of a worker, which may be why a call to TensorFlow has failed."""
        self._thread.join(timeout=2.0)
