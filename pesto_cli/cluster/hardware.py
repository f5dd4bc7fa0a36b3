"""Memory of a host, of this one or of one that only TensorFlow can read files on."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath

# Reads a text file; OSError where there is none.
Read = Callable[[str], str]

CGROUP_2 = PurePosixPath("/sys/fs/cgroup")
CGROUP_1 = CGROUP_2 / "memory"


def memory_bytes(read: Read = lambda path: Path(path).read_text()) -> int:
    """Memory that the processes of a host may have: what is built in, or the cgroup's limit."""
    fields = dict(line.split(":") for line in read("/proc/meminfo").splitlines())
    built_in = int(fields["MemTotal"].split()[0]) * 1024
    return min([built_in, *_cgroup_limits(read)])


def _cgroup_limits(read: Read) -> list[int]:
    """Limits of the process's own cgroup and of those above it, of either version."""
    limits = []
    for line in _text(read, "/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root, name = (
            (CGROUP_1, "memory.limit_in_bytes") if controllers else (CGROUP_2, "memory.max")
        )
        own = PurePosixPath(path).relative_to("/")
        for folder in (own, *own.parents):
            limits.append(_text(read, str(root / folder / name)).strip())
    return [int(limit) for limit in limits if limit.isdigit()]


def _text(read: Read, path: str) -> str:
    try:
        return read(path)
    except OSError:
        return ""
