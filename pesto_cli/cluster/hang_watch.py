"""Find tasks that hang: TensorFlow waits for them for ever.

The server of a task sends its settings as soon as someone connects. If its process is stopped or
hangs, the system still accepts the connection, but nothing is sent.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NoReturn

from pesto_cli.cluster.cluster_file import split

# Seconds between two attempts to get an answer from all tasks, and the time limit of an attempt.
PERIOD_S, ANSWER_S = 5.0, 10.0
# A task hangs if so many attempts in a row fail. So it is named after 25 to 30 s.
NUM_SILENT = 2


class HangWatch:
    """Connects to every task again and again, in a thread.

    on_loss: is called with a message that names the tasks that do not answer.
    """

    def __init__(self, address_of: Mapping[str, str], on_loss: Callable[[str], NoReturn]) -> None:
        self._address_of, self._on_loss = address_of, on_loss
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        num_silent = dict.fromkeys(self._address_of, 0)
        while True:
            time.sleep(PERIOD_S)
            silent = silent_tasks(self._address_of, ANSWER_S)
            for task in num_silent:
                num_silent[task] = num_silent[task] + 1 if task in silent else 0
            if hanging := [task for task, count in num_silent.items() if count >= NUM_SILENT]:
                at = ", ".join(f"{task} at {self._address_of[task]}" for task in hanging)
                self._on_loss(
                    f"{at} accepts connections, but has not answered for "
                    f"{NUM_SILENT * ANSWER_S:.0f} s. The task hangs or is stopped: end it, and "
                    "start it again."
                )


def silent_tasks(address_of: Mapping[str, str], limit_s: float) -> set[str]:
    """Return the tasks that accept a connection, but send nothing within a time limit.

    All tasks are tried at the same time. One that cannot be reached is not silent: it has ended.
    """
    with ThreadPoolExecutor(len(address_of)) as attempts:
        is_silent = attempts.map(partial(_is_silent, limit_s=limit_s), address_of.values())
        return {task for task, silent in zip(address_of, is_silent, strict=True) if silent}


def _is_silent(address: str, limit_s: float) -> bool:
    try:
        with socket.create_connection(split(address), timeout=limit_s) as connection:
            try:
                connection.recv(1)
            except TimeoutError:
                return True
    except OSError:
        return False
    return False
