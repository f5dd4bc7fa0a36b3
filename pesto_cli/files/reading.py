"""Files and pipes, read whole: unpacked, and up to a limit."""

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from pesto_cli.errors import BadInputError

MAX_INPUT_BYTES = 4 * 10**9
CHUNK_BYTES = 2**20
_limit: ContextVar[int] = ContextVar("max_input_bytes", default=MAX_INPUT_BYTES)


@contextmanager
def input_limit(num_bytes: int) -> Iterator[None]:
    """Refuse, as long as the context lasts, to read inputs of more bytes; else of more than 4 GB.

    Example:
        >>> with input_limit(8 * 10**9):
        ...     profile = read_profile("large.profile.json.gz")
    """
    token = _limit.set(num_bytes)
    try:
        yield
    finally:
        _limit.reset(token)


def max_input_bytes() -> int:
    """The limit that holds here."""
    return _limit.get()


def check_input_size(path: Path | str, num_bytes: int, has: str = "has") -> None:
    """Refuse an input above the limit; `has` joins the path with the size.

    Raises:
        BadInputError: it is larger.
    """
    if num_bytes > max_input_bytes():
        raise BadInputError(
            f"{path} {has} more than the {max_input_bytes():,} bytes that are read at most; give a "
            "smaller input, or a higher limit: pesto --max-input SIZE COMMAND ..."
        )


def read_bytes(path: Path | str) -> bytes:
    """The content of a file or pipe, unpacked if it is gzip.

    Raises:
        BadInputError: the file is missing, unreadable, above the limit or a truncated gzip.
    """
    try:
        data = content(path)
        return _unpacked(path, data) if data[:2] == b"\x1f\x8b" else data
    except IsADirectoryError:
        graph = f" {of_a_graph(path)}" if any(Path(path).glob("saved_model.pb*")) else ""
        raise BadInputError(f"{path} is a folder; a file was expected.{graph}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise BadInputError(f"{path} is a truncated or damaged gzip file; make it again.") from None
    except FileNotFoundError:
        raise BadInputError(f"{path} does not exist; give the path of a file.") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}.") from None


def content(path: Path | str) -> bytes:
    """The content of a file or pipe as it is.

    Raises:
        BadInputError: it is a device, which may have no end, or above the limit.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode):
            raise BadInputError(f"{path} is a device; a file or a pipe was expected.")
        check_input_size(path, found.st_size)
        data = io.BytesIO()  # of which getvalue() makes no copy
        while chunk := file.read(CHUNK_BYTES):
            data.write(chunk)
            check_input_size(path, data.tell())
    return data.getvalue()


def _unpacked(path: Path | str, data: bytes) -> bytes:
    """What gzip data unpacks to, which is measured first, so that too much takes no memory."""
    num_bytes = 0
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while chunk := file.read(CHUNK_BYTES):
            num_bytes += len(chunk)
            check_input_size(path, num_bytes, "unpacks to")
    return gzip.decompress(data)


def of_a_graph(path: Path | str) -> str:
    """What to do with a graph that was given for something else."""
    return f"Profile the graph first: pesto profile {path} -m MACHINE -o PROFILE"
