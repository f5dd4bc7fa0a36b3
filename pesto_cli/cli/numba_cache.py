"""Where numba caches compiled kernels: next to the sources, in the user's cache, or for one run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

VARIABLE = "NUMBA_CACHE_DIR"


@contextmanager
def kernel_cache() -> Iterator[None]:
    """Set a temporary cache folder if numba can write to none of its own; numba would fail.

    With a temporary folder, every process compiles the kernels again, for about 40 s.
    """
    sources = Path(__file__).parents[1]
    users = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if VARIABLE in os.environ or _is_writable(sources) or _is_writable(users):
        yield
        return
    with TemporaryDirectory(prefix="pesto-kernels-") as folder:
        os.environ[VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[VARIABLE]


def _is_writable(folder: Path) -> bool:
    """Whether a file can be created in a folder; the folder is created if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
