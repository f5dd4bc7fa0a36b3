"""Checks that load no library: versions, cores, memory."""

import os
import platform
import sys
from importlib import metadata

from pesto_cli.cluster.hardware import memory_bytes
from pesto_cli.errors import EnvironmentFailedError

PYTHONS = ((3, 11), (3, 12))
LEAST_CORES = 2
# Memory of TensorFlow, a solver and a graph of 30,000 ops together.
LEAST_MEMORY_BYTES = 4 * 2**30


def version(distribution: str) -> str:
    """Return the version of an installed distribution."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        raise EnvironmentFailedError("not installed") from None


def python() -> str:
    """Return Python's version and path; fail if pesto is not tested with this version."""
    found = platform.python_version()
    if sys.version_info[:2] not in PYTHONS:
        raise EnvironmentFailedError(f"{found}, which pesto is not tested with")
    return f"{found} ({sys.executable})"


def cores() -> str:
    """Return the number of cores that this process may use; raise an error below LEAST_CORES."""
    usable = len(os.sched_getaffinity(0))
    found = f"{usable} of {os.cpu_count()}"
    if usable < LEAST_CORES:
        raise EnvironmentFailedError(f"{found}; searches share it with all other programs")
    return found


def memory() -> str:
    """Return the memory that this process may use; raise an error below LEAST_MEMORY_BYTES."""
    found = f"{memory_bytes() / 2**30:.1f} GiB"
    if memory_bytes() < LEAST_MEMORY_BYTES:
        raise EnvironmentFailedError(f"only {found}")
    return found
