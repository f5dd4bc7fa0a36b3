"""Reads whole files and pipes: decompresses gzip, and refuses inputs above a limit."""

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
    """Set the largest input that is read, in bytes, within this context; the default is 4 GB.

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
    """Return the limit on inputs in this context, in bytes."""
    return _limit.get()


def check_input_size(path: Path | str, num_bytes: int, has: str = "has") -> None:
    """Refuse an input above the limit; `has` is the verb of the message.

    Raises:
        BadInputError: the input has more bytes than the limit.
    """
    if num_bytes > max_input_bytes():
        raise BadInputError(
            f"{path} {has} more than {max_input_bytes():,} bytes, the limit for inputs; give a "
            "smaller input, or a higher limit: pesto --max-input SIZE COMMAND ..."
        )


def read_bytes(path: Path | str) -> bytes:
    """Return the content of a file or pipe, decompressed if it is gzip.

    Raises:
        BadInputError: the file is missing, unreadable, above the limit or damaged gzip.
    """
    try:
        data = content(path)
        return _decompressed(path, data) if data[:2] == b"\x1f\x8b" else data
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
    """Return the content of a file or pipe, without decompression.

    Raises:
        BadInputError: it is a device, whose data may be endless, or above the limit.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode):
            raise BadInputError(f"{path} is a device; a file or a pipe was expected.")
        check_input_size(path, found.st_size)
        data = io.BytesIO()  # its getvalue() makes no copy
        while chunk := file.read(CHUNK_BYTES):
            data.write(chunk)
            check_input_size(path, data.tell())
    return data.getvalue()


def _decompressed(path: Path | str, data: bytes) -> bytes:
    """Return decompressed gzip data; first check its size without keeping the data in memory."""
    num_bytes = 0
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while chunk := file.read(CHUNK_BYTES):
            num_bytes += len(chunk)
            check_input_size(path, num_bytes, "decompresses to")
    return gzip.decompress(data)


def of_a_graph(path: Path | str) -> str:
    """Return the remedy for a graph that was given in place of another input."""
    return f"Profile the graph first: pesto profile {path} -m MACHINE -o PROFILE"
