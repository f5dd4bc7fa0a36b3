"""Standard streams that were closed before the process started, as by `2>&-`."""

import os
import sys


def open_standard_streams() -> None:
    """Open closed standard streams to the null device.

    Otherwise a file that is opened later would get the free descriptor number, and prints of
    libraries to this stream would be written into the file.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # Gets the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115  until the process ends
