"""End a process with its parent, and describe how a process ended."""

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
    "All processes of the cluster have been ended. Run the command again; if it was killed by "
    "SIGKILL, memory may have run out: then use a smaller model or batch, or fewer workers."
)
_MAX_LINE_BYTES = 200


def die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent ends in any way.

    The parent is the thread that started this process. A child does not inherit the setting, and
    the kernel clears it when the process gains capabilities.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


def how_it_ended(status: int) -> str:
    """Return a phrase for an exit code, or for minus a signal number, as in `Popen.returncode`."""
    if status >= 0:
        return f"ended with exit code {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"


def last_lines(file: BinaryIO) -> str:
    """Return the last lines that a process wrote to a file, indented."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - LAST_LINES * _MAX_LINE_BYTES))
    return quoted(file.read().decode(errors="replace").splitlines())


def quoted(lines: list[str]) -> str:
    """Return the last non-empty lines, indented; a note if there are none."""
    shown = [printable(line[:_MAX_LINE_BYTES]) for line in lines if line.strip()][-LAST_LINES:]
    return "\n".join(f"    {line}" for line in shown) or "    (it wrote nothing to stderr)"
