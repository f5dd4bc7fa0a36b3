"""The client process: opens the cluster, then runs what it is asked to, one call at a time.

It is a new process, as its parent may have TensorFlow loaded, and threads, and could not be forked.
Its standard output is its standard error, which the parent passes on; requests and replies go
through a socket that it is started with. Workers inherit that socket and never use it, so that the
parent sees its end when all are gone.
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

# What sessions raise when a task is gone; others speak of the graph or its data.
OF_A_LOSS = {
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
    "InternalError",
    "UnavailableError",
    "UnknownError",
}


def main() -> None:
    """Serve the parent, whose process id and end of the socket are the arguments."""
    parent, descriptor = map(int, sys.argv[1:])
    die_with(parent)
    faulthandler.enable(all_threads=False)
    replies = _Replies(Pipe(descriptor))
    start: Start = pickle.loads(replies.pipe.recv_bytes())
    try:
        opened = start.kind.open(start.limit_s, replies.lose)
    except Exception as error:
        replies.send(Raised(_for_the_parent(error)))
        replies.leave()
    replies.send(Up(opened.machine))
    while True:
        try:
            asked = replies.pipe.recv_bytes()
        except EOFError:  # the parent is done with it
            replies.leave()
        replies.send(_reply(asked, opened))


def _reply(asked: bytes, opened: Opened) -> Reply:
    try:
        request: Request = pickle.loads(asked)
        with input_limit(request.max_input_bytes):
            return Returned(request.function(opened.connection, *request.args, **request.kwargs))
    except BaseException as error:
        if _may_be_a_loss(error):
            opened.check()
        return Raised(_for_the_parent(error))
    finally:
        sys.stdout.flush()


class _Replies:
    """The way to the parent, also for a thread that watches the workers."""

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

    def lose(self, words: str) -> NoReturn:
        self.send(Lost(words))
        self.leave()

    def leave(self) -> NoReturn:
        """End without TensorFlow's farewell, which may wait for a thread of it that never ends."""
        sys.stderr.flush()
        os._exit(1)


def _may_be_a_loss(error: BaseException | None) -> bool:
    """Whether TensorFlow raised the error, or one that led to it, for want of a task perhaps."""
    while error is not None:
        if type(error).__module__.startswith("tensorflow.") and type(error).__name__ in OF_A_LOSS:
            return True
        error = error.__cause__ or error.__context__
    return False


def _for_the_parent(error: BaseException) -> Exception:
    """A PestoError as it stands; of anything else its words, as it may not be picklable."""
    if isinstance(error, PestoError):
        return error
    told = RuntimeError(f"{type(error).__name__}: {error}")
    told.add_note("In the client process:\n" + "".join(traceback.format_exception(error)))
    return told
