"""What a process owes its parent: to die with it, and to leave word why it ended."""

import contextlib
import ctypes
import os
import signal
from typing import BinaryIO

from pesto_cli.printable import printable

# <linux/prctl.h>
PR_SET_PDEATHSIG = 1
LAST_LINES = 20
REMEDY = (
    "What had been started with it has been ended. Run it again; SIGKILL may be the kernel's, for "
    "want of memory: then take a smaller model or batch, or fewer workers."
)
_MAX_LINE_BYTES = 200


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends.

    A child does not inherit this, and the kernel forgets it when the process gains capabilities.
    It holds from the thread that started the process on: that one is the parent.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def how_it_ended(status: int) -> str:
    """Words for an exit code, or for minus a signal, as `Popen.returncode` has them."""
    if status >= 0:
        return f"ended with exit code {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"


def last_lines(file: BinaryIO) -> str:
    """The end of what a process wrote into a file, indented."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - LAST_LINES * _MAX_LINE_BYTES))
    return quoted(file.read().decode(errors="replace").splitlines())


def quoted(lines: list[str]) -> str:
    """The last of some lines below each other, or a word that there are none."""
    spoken = [printable(line[:_MAX_LINE_BYTES]) for line in lines if line.strip()][-LAST_LINES:]
    return "\n".join(f"    {line}" for line in spoken) or "    (it wrote nothing to stderr)"
