"""Read the memory size of this host, or of another one whose files TensorFlow reads."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath

# Reads a text file by its path; raises OSError if it does not exist.
Read = Callable[[str], str]

CGROUP_2 = PurePosixPath("/sys/fs/cgroup")
CGROUP_1 = CGROUP_2 / "memory"


def memory_bytes(read: Read = lambda path: Path(path).read_text()) -> int:
    """Return the memory that processes of a host may use: all of it, or the limit of the cgroup."""
    fields = dict(line.split(":") for line in read("/proc/meminfo").splitlines())
    physical = int(fields["MemTotal"].split()[0]) * 1024
    return min([physical, *_cgroup_limits(read)])


def _cgroup_limits(read: Read) -> list[int]:
    """Return the memory limits of this process's cgroup and its parents, for cgroup 1 and 2."""
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
