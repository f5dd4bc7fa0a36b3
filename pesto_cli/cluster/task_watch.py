"""Watch the tasks of a running cluster: if one ends, TensorFlow may wait for it for ever."""

import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from pesto_cli.cluster.cluster_file import split

# Time limit of one attempt to reach a task.
ATTEMPT_S = 2.0
# A host that is gone does not close its connections. TCP probes find this: seconds before the first
# probe, seconds between probes, and number of probes.
KEEPALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


def unreachable(address_of: Mapping[str, str]) -> str | None:
    """Return a message that names the tasks that cannot be reached; None if all can.

    All tasks are tried at the same time, because each host that is gone takes ATTEMPT_S.
    """
    with ThreadPoolExecutor(len(address_of)) as attempts:
        words = attempts.map(_why_unreachable, address_of, address_of.values())
        return "; ".join(filter(None, words)) or None


def _why_unreachable(task: str, address: str) -> str:
    try:
        _connect(address).close()
    except OSError as error:
        return f"{task} at {address} cannot be reached ({error.strerror or error})"
    return ""


class TaskWatch:
    """Holds an idle connection to every task, in a thread.

    A server closes an idle connection after minutes. If the task can be reached again, it runs.
    """

    def __init__(self, address_of: Mapping[str, str], on_loss: Callable[[str], NoReturn]) -> None:
        self._address_of, self._on_loss = address_of, on_loss
        self._selector = selectors.DefaultSelector()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for task in self._address_of:
            self._hold(task)
        while True:
            for key, _ in self._selector.select():
                connection: socket.socket = key.data[1]
                try:
                    is_open = bool(connection.recv(4096))  # servers send data first
                except OSError:
                    is_open = False
                if not is_open:
                    self._selector.unregister(connection)
                    connection.close()
                    self._hold(key.data[0])

    def _hold(self, task: str) -> None:
        while True:
            try:
                connection = _connect(self._address_of[task])
                break
            except OSError:
                self.check()
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self._selector.register(connection, selectors.EVENT_READ, (task, connection))

    def check(self) -> None:
        """Call `on_loss`, which does not return, if any task cannot be reached."""
        if words := unreachable(self._address_of):
            self._on_loss(
                f"{words}. The task has ended, or its host or network has failed: start it again."
            )


def _connect(address: str) -> socket.socket:
    return socket.create_connection(split(address), timeout=ATTEMPT_S)
