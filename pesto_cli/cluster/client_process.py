"""Start, call and end the client process from its parent."""

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
# Time limit for the imports, in addition to the limit for opening the cluster.
IMPORT_LIMIT_S = 180.0
# Time limit for the end of all processes.
END_LIMIT_S = 10.0


class ClientProcess:
    """A client process; it runs until `end` is called or the thread that created it ends."""

    def __init__(self, kind: Kind, start_limit_s: float) -> None:
        """Start the process, which opens the cluster.

        Raises:
            PestoError: the cluster could not be opened.
        """
        self._pipe, theirs = Pipe()
        self._why_gone = ""
        with theirs:
            self._process = subprocess.Popen(
                # -P: the import path is that of the parent, without the current folder.
                [sys.executable, "-P", "-u", "-c", COMMAND, str(os.getpid()), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **kind.environ, "PYTHONPATH": _import_path()},
                start_new_session=True,  # only the parent gets a Ctrl-C from the terminal
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
        """Run the function of a request in the client process and return its result.

        Raises:
            PestoError: the function raised it.
            EnvironmentFailedError: the client or a worker has ended.
            RuntimeError: the function raised another error.
        """
        if self._why_gone:
            raise EnvironmentFailedError(
                f"the cluster cannot be called any more ({self._why_gone}); connect again."
            )
        answer = self._ask(request)
        assert isinstance(answer, Returned)
        return answer.value

    def _ask(self, message: Start | Request, limit_s: float | None = None) -> Up | Returned:
        """Send a message and return the reply; if there is no reply, end all processes."""
        data = pickle.dumps(message)
        try:
            with contextlib.suppress(BrokenPipeError):  # the client's last reply has the reason
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
                f"the client process ({self._process.pid}) {how}. Its last output:\n"
                f"{self._output.last_lines()}\n{REMEDY}"
            )
        if isinstance(reply, Lost):
            raise with_words(EnvironmentFailedError, reply.words)
        return reply

    def end(self, why: str = "it was closed") -> None:
        """Kill the client, and with it all that it has started; return when all have ended.

        It is killed because an orderly shutdown of TensorFlow takes a second or more.
        """
        if self._why_gone:
            return
        self._why_gone = why
        self._process.kill()
        self._process.wait()
        # The client and all workers hold the other end of the pipe.
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
    """Passes the client's output on to stderr, and stores its last lines."""

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
        """Wait for output after the end of the client: its workers may still write some."""
        self._thread.join(timeout=1.0)

    def last_lines(self) -> str:
        """Return the last lines of the output, indented."""
        self.wait_for_the_rest()
        return quoted(list(self._lines))
