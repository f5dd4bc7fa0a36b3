"""Ctrl-C and SIGTERM that arrive within a library, which may replace or drop the exception."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pesto_cli.errors import SigtermReceived

_SIGNALS = {KeyboardInterrupt: signal.SIGINT, SigtermReceived: signal.SIGTERM}
_AGAIN_S = 0.01  # until the call that has dropped an interrupt has returned


@contextmanager
def signals_as_such() -> Iterator[None]:
    """Let the exception of a signal leave the context, whatever a library makes of it.

    A library may raise another error instead. If the library is in C++, the message of this error
    may have only the name of the exception. A finaliser or a callback cannot raise: Python would
    print the error and go on. Then the process sends itself the signal again.
    """
    before, sys.unraisablehook = sys.unraisablehook, _send_again
    try:
        yield
    except Exception as error:
        if signalled := _signalled(error):
            raise signalled() from error
        raise
    finally:
        sys.unraisablehook = before


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
