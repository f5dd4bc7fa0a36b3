"""What can be told without loading anything: versions, cores, memory."""

import os
import platform
import sys
from importlib import metadata

from pesto_cli.cluster.hardware import memory_bytes
from pesto_cli.errors import EnvironmentFailedError

PYTHONS = ((3, 11), (3, 12))
LEAST_CORES = 2
# What TensorFlow, a solver and a graph of 30,000 ops take beside each other.
LEAST_MEMORY_BYTES = 4 * 2**30


def version(distribution: str) -> str:
    """Of an installed distribution."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        raise EnvironmentFailedError("not installed") from None


def python() -> str:
    """Its version."""
    found = platform.python_version()
    if sys.version_info[:2] not in PYTHONS:
        raise EnvironmentFailedError(f"{found}, which pesto is not tested with")
    return f"{found} ({sys.executable})"


def cores() -> str:
    """How many this process may use."""
    usable = len(os.sched_getaffinity(0))
    found = f"{usable} of {os.cpu_count()}"
    if usable < LEAST_CORES:
        raise EnvironmentFailedError(f"{found}; searches take turns with everything else")
    return found


def memory() -> str:
    """How much this process may use."""
    found = f"{memory_bytes() / 2**30:.1f} GiB"
    if memory_bytes() < LEAST_MEMORY_BYTES:
        raise EnvironmentFailedError(f"only {found}")
    return found
