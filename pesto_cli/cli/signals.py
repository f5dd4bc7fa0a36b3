"""Ctrl-C and SIGTERM that arrive within a library, which may replace or drop the exception."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pesto_cli.errors import SigtermReceived

_SIGNALS = {KeyboardInterrupt: signal.SIGINT, SigtermReceived: signal.SIGTERM}
_AGAIN_S = 0.01  # until the call that has dropped an interrupt has returned
_FOLLOWS_S = 1.0  # an error within this time of a Ctrl-C is what a library made of it


@contextmanager
def signals_as_such() -> Iterator[None]:
    """Let the exception of a signal leave the context, whatever a library makes of it.

    A library may raise another error instead. If the library is in C++, the message of this error
    may have only the name of the exception, or not even that. A finaliser or a callback cannot
    raise: Python would print the error and go on. Then the process sends itself the signal again.
    """
    interrupted_s = -math.inf

    def interrupt(signum: int, frame: Any) -> None:
        nonlocal interrupted_s
        interrupted_s = time.monotonic()
        raise KeyboardInterrupt

    is_python_s = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_python_s:  # it is ignored in the background of a shell without job control
        signal.signal(signal.SIGINT, interrupt)
    before, sys.unraisablehook = sys.unraisablehook, _send_again
    try:
        yield
    except Exception as error:
        if signalled := _signalled(error):
            raise signalled() from error
        if time.monotonic() < interrupted_s + _FOLLOWS_S:
            raise KeyboardInterrupt from error
        raise
    finally:
        sys.unraisablehook = before
        if is_python_s:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _send_again(dropped: Any) -> None:
    signalled = None if dropped.exc_value is None else _signalled(dropped.exc_value)
    if signalled is None:
        sys.__unraisablehook__(dropped)
    else:
        threading.Timer(_AGAIN_S, os.kill, (os.getpid(), _SIGNALS[signalled])).start()


def _signalled(error: BaseException) -> type[BaseException] | None:
    """Return the exception of a signal from which an error follows; None if there is none."""
    causes = [error]
    for each in causes:
        for signalled in _SIGNALS:
            if isinstance(each, signalled) or signalled.__name__ in str(each):
                return signalled
        before = (each.__cause__, each.__context__)
        causes += [one for one in before if one is not None and one not in causes]
    return None
