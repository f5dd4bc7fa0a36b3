"""The client process as its parent holds it."""

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import deque
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import IO, Any

from pesto_cli.cluster.backend import Kind
from pesto_cli.cluster.messages import Lost, Raised, Request, Returned, Start, Up
from pesto_cli.cluster.processes import LAST_LINES, REMEDY, how_it_ended, quoted
from pesto_cli.data.machine import Machine
from pesto_cli.errors import EnvironmentFailedError, with_words

COMMAND = "from pesto_cli.cluster.client import main; main()"
# To open a cluster has a limit of its own; this is for the imports before it.
IMPORT_LIMIT_S = 180.0
# For all processes to be gone.
END_LIMIT_S = 10.0


class ClientProcess:
    """Runs from its creation until `end`, or the end of the thread that created it."""

    def __init__(self, kind: Kind, start_limit_s: float) -> None:
        """Start the process and have it open the cluster.

        Raises:
            PestoError: the cluster could not be opened.
        """
        self._pipe, theirs = Pipe()
        self._why_gone = ""
        with theirs:
            self._process = subprocess.Popen(
                # -P: what can be imported is up to the parent alone.
                [sys.executable, "-P", "-u", "-c", COMMAND, str(os.getpid()), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **kind.environ, "PYTHONPATH": _import_path()},
                start_new_session=True,  # a Ctrl-C of the terminal is for the parent alone
            )
        assert self._process.stdout is not None
        self._output = _Output(self._process.stdout)
        self._process_ended = os.pidfd_open(self._process.pid)
        try:
            up = self._ask(Start(kind, start_limit_s), start_limit_s + IMPORT_LIMIT_S)
        except BaseException:
            self.end("it did not start")
            raise
        assert isinstance(up, Up)
        self.machine: Machine = up.machine

    def call(self, request: Request) -> Any:
        """What the function of the request returns.

        Raises:
            PestoError: the function raised it.
            EnvironmentFailedError: the client or a worker has ended.
            RuntimeError: the function raised something else.
        """
        if self._why_gone:
            raise EnvironmentFailedError(
                f"the cluster cannot be called any more ({self._why_gone}); connect again."
            )
        answer = self._ask(request)
        assert isinstance(answer, Returned)
        return answer.value

    def _ask(self, message: Start | Request, limit_s: float | None = None) -> Up | Returned:
        """Send a message and wait for the reply; without one, end everything."""
        data = pickle.dumps(message)
        try:
            with contextlib.suppress(BrokenPipeError):  # then its last reply says why
                self._pipe.send_bytes(data)
            reply = self._receive(limit_s)
        except BaseException as error:
            self.end(str(error).partition(". ")[0] or "its last call was interrupted")
            raise
        if isinstance(reply, Raised):
            raise reply.error
        return reply

    def _receive(self, limit_s: float | None) -> Up | Returned | Raised:
        if not wait([self._pipe, self._process_ended], limit_s):
            raise with_words(
                EnvironmentFailedError,
                f"the client process does not answer after {limit_s:.0f} s. It wrote:\n"
                f"{self._output.last_lines()}\nTry again when the machine is less busy.",
            )
        reply: Up | Returned | Raised | Lost | None = None
        with contextlib.suppress(EOFError, ConnectionResetError):
            if self._pipe.poll():
                reply = pickle.loads(self._pipe.recv_bytes())
        if reply is None:
            how = how_it_ended(self._process.wait())
            reply = Lost(
                f"the client process ({self._process.pid}) {how}. Its last words:\n"
                f"{self._output.last_lines()}\n{REMEDY}"
            )
        if isinstance(reply, Lost):
            raise with_words(EnvironmentFailedError, reply.words)
        return reply

    def end(self, why: str = "it was closed") -> None:
        """End the client at once, and with it all that it has started; returns when they are gone.

        A farewell would take TensorFlow a second or more.
        """
        if self._why_gone:
            return
        self._why_gone = why
        self._process.kill()
        self._process.wait()
        # They all hold the other end of the pipe.
        until = time.monotonic() + END_LIMIT_S
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll(max(0.0, until - time.monotonic())):
                self._pipe.recv_bytes()
        self._pipe.close()
        self._output.wait_for_the_rest()
        os.close(self._process_ended)


def _import_path() -> str:
    return os.pathsep.join(os.path.abspath(folder) for folder in sys.path)


class _Output:
    """Passes what the client writes on to stderr, and remembers the last lines."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._stream:
            for data in self._stream:
                line = data.decode(errors="replace")
                self._lines.append(line.rstrip())
                sys.stderr.write(line)

    def wait_for_the_rest(self) -> None:
        """Only what the client has started itself can still write, once it has ended."""
        self._thread.join(timeout=1.0)

    def last_lines(self) -> str:
        """Them, indented."""
        self.wait_for_the_rest()
        return quoted(list(self._lines))
