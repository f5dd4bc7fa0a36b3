"""Where numba keeps compiled kernels: beside the sources, or in the user's cache, or for a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

VARIABLE = "NUMBA_CACHE_DIR"


@contextmanager
def kernel_cache() -> Iterator[None]:
    """Give numba a folder of this process if it can write to none of its own: it would give up.

    Kernels are compiled anew then, about 40 s.
    """
    sources = Path(__file__).parents[1]
    users = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if VARIABLE in os.environ or _is_writable(sources) or _is_writable(users):
        yield
        return
    with TemporaryDirectory(prefix="pesto-kernels-") as folder:
        os.environ[VARIABLE] = folder
        yield


def _is_writable(folder: Path) -> bool:
    """Whether a file can be made in a folder, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
