"""The client process: opens the cluster, then runs the requested calls one at a time.

It is a new process, because its parent may have loaded TensorFlow and started threads, and such a
process cannot be forked safely. Its standard output goes to its standard error, which the parent
passes on. Requests and replies go through a socket that it inherits. Workers inherit the socket too
and never use it: when it closes, the parent knows that the client and all workers have ended.
"""

import faulthandler
import os
import pickle
import sys
import threading
import traceback
from multiprocessing.connection import Connection as Pipe
from typing import NoReturn

from pesto_cli.cluster.backend import Opened
from pesto_cli.cluster.messages import Lost, Raised, Reply, Request, Returned, Start, Up
from pesto_cli.cluster.processes import die_with
from pesto_cli.errors import PestoError
from pesto_cli.files import input_limit

# TensorFlow errors that a session may raise when a task is gone. All others concern the graph or
# its data.
LOSS_ERRORS = {
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
    "InternalError",
    "UnavailableError",
    "UnknownError",
}


def main() -> None:
    """Serve the parent. Arguments: its process id, and the descriptor of the socket to it."""
    parent, descriptor = map(int, sys.argv[1:])
    die_with(parent)
    faulthandler.enable(all_threads=False)
    replies = _Replies(Pipe(descriptor))
    start: Start = pickle.loads(replies.pipe.recv_bytes())
    try:
        opened = start.kind.open(start.limit_s, replies.report_loss)
    except Exception as error:
        replies.send(Raised(_for_the_parent(error)))
        replies.leave()
    replies.send(Up(opened.machine))
    while True:
        try:
            data = replies.pipe.recv_bytes()
        except EOFError:  # the parent has closed the socket
            replies.leave()
        replies.send(_reply(data, opened))


def _reply(data: bytes, opened: Opened) -> Reply:
    try:
        request: Request = pickle.loads(data)
        with input_limit(request.max_input_bytes):
            return Returned(request.function(opened.connection, *request.args, **request.kwargs))
    except BaseException as error:
        if _may_be_loss(error):
            opened.check()
        return Raised(_for_the_parent(error))
    finally:
        sys.stdout.flush()


class _Replies:
    """Sends replies to the parent, also from the thread that watches the workers."""

    def __init__(self, pipe: "Pipe[bytes, bytes]") -> None:
        self.pipe = pipe
        self._lock = threading.Lock()

    def send(self, reply: Reply) -> None:
        try:
            data = pickle.dumps(reply)
        except Exception as error:
            data = pickle.dumps(Raised(_for_the_parent(error)))
        with self._lock:
            self.pipe.send_bytes(data)

    def report_loss(self, words: str) -> NoReturn:
        self.send(Lost(words))
        self.leave()

    def leave(self) -> NoReturn:
        """Exit at once: TensorFlow's shutdown may wait for one of its threads that never ends."""
        sys.stderr.flush()
        os._exit(1)


def _may_be_loss(error: BaseException | None) -> bool:
    """Whether the error, or one of its causes, may mean that a task is gone."""
    while error is not None:
        if type(error).__module__.startswith("tensorflow.") and type(error).__name__ in LOSS_ERRORS:
            return True
        error = error.__cause__ or error.__context__
    return False


def _for_the_parent(error: BaseException) -> Exception:
    """Return a PestoError unchanged; convert any other error, which may not be picklable.

    The result has the message of the error, and its traceback as a note.
    """
    if isinstance(error, PestoError):
        return error
    converted = RuntimeError(f"{type(error).__name__}: {error}")
    converted.add_note("In the client process:\n" + "".join(traceback.format_exception(error)))
    return converted
