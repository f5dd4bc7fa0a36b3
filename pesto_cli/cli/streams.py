"""Standard streams that whoever started the process has closed, as `2>&-` does."""

import os
import sys


def open_standard_streams() -> None:
    """Open those that are closed, to nowhere.

    A file that is opened later would get the free number of a descriptor, and what libraries print
    there would be written into it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # Gets the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115  until the process ends
