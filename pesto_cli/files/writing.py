"""Writing files whole or not at all, with the mode and owner that they had."""

import contextlib
import errno
import fcntl
import glob
import os
import platform
import re
import secrets
import stat
from pathlib import Path

from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.files.destination import Destination, destination

# Of a name of up to 255 bytes, as many characters as leave room for the rest of a temporary one.
NAMED_CHARACTERS = 25
# How the name of a temporary file ends.
ENDING = re.compile(r"[0-9a-f]{16}\.tmp")
ATTEMPTS = 100
# Extended attributes that are kept: the access control list, the label of SELinux, the user's own.
ACCESS_LIST = "system.posix_acl_access"
KEPT_ATTRIBUTES = (ACCESS_LIST, "security.selinux", "user.")


def atomic_write(path: Path | str, data: bytes) -> None:
    """Write a file whole or not at all; a link is followed, a pipe or device is written to.

    A file that is replaced keeps its mode without the set-user-ID and set-group-ID bits and, where
    the system permits it, its owner, group, access control list and extended attributes. A new one
    has what the umask leaves.

    Raises:
        BadInputError: as of `destination`.
        BrokenPipeError: the reader of a pipe has left.
        EnvironmentFailedError: the file system refused.
    """
    place = destination(path)
    try:
        if place.is_stream:
            with place.opened("wb") as stream:
                stream.write(data)
        else:
            _replace(place, data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise EnvironmentFailedError(
            f"{path} could not be written: {error.strerror}; free space or choose another path."
        ) from error


def _replace(place: Destination, data: bytes) -> None:
    _sweep(place.path)
    temporary, handle = _temporary(place.path)
    try:
        # A file system may refuse the data only as it is closed. The handle keeps the lock.
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(data)
        with contextlib.suppress(FileNotFoundError):
            _keep_access(place.path, handle)
        os.replace(temporary, place.path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(handle)


def _temporary(path: Path) -> tuple[Path, int]:
    """A new file beside a path, open and locked for as long as its writer lives.

    Others may not read it before its mode is that of the file in whose place it is written.
    """
    mode = 0o600 if path.exists() else 0o666
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for _ in range(ATTEMPTS):
        temporary = path.with_name(f"{_beginning(path)}{secrets.token_hex(8)}.tmp")
        handle = os.open(temporary, flags, mode)
        if _locked(handle) is not False and os.fstat(handle).st_nlink:
            return temporary, handle
        os.close(handle)  # another process had swept it away before it was locked
    raise BlockingIOError(errno.EAGAIN, "other processes remove the file before it is whole")


def _beginning(path: Path) -> str:
    """Of the names of files that this host writes in place of one, until they are whole."""
    return f".{path.name[:NAMED_CHARACTERS]}.{platform.node()[:NAMED_CHARACTERS]}."


def _locked(handle: int) -> bool | None:
    """Lock a file; False if another process holds the lock, None if there are no locks here."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sweep(path: Path) -> None:
    """Remove what processes left behind that were killed as they wrote this file.

    Their locks went with them. Process numbers would not tell: a container has its own.
    """
    beginning = _beginning(path)
    for left in path.parent.glob(f"{glob.escape(beginning)}*"):
        if ENDING.fullmatch(left.name.removeprefix(beginning)):
            with contextlib.suppress(OSError):  # somebody else's, or gone
                _remove_unless_locked(left)


def _remove_unless_locked(left: Path) -> None:
    handle = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if _locked(handle):
            left.unlink()
    finally:
        os.close(handle)


def _keep_access(path: Path, handle: int) -> None:
    """Give a file the mode, owner and attributes of the one that it replaces.

    Raises:
        FileNotFoundError: there is none.
    """
    before = path.stat()
    mode = stat.S_IMODE(before.st_mode) & 0o777
    for owner in (before.st_uid, -1):  # only the superuser may give files away
        with contextlib.suppress(OSError):
            os.fchown(handle, owner, before.st_gid)
            break
    if os.fstat(handle).st_gid == before.st_gid:
        _keep_attributes(path, handle)
    else:  # another group: it may do what everybody may
        mode &= 0o707 | (mode & 0o007) << 3
    os.fchmod(handle, mode)


def _keep_attributes(path: Path, handle: int) -> None:
    if not hasattr(os, "listxattr"):  # only Linux has it
        return
    with contextlib.suppress(OSError):  # a folder may give new files an access list
        os.removexattr(handle, ACCESS_LIST)
    with contextlib.suppress(OSError):  # a file system without attributes
        for name in os.listxattr(path):
            if name.startswith(KEPT_ATTRIBUTES):
                with contextlib.suppress(OSError):
                    os.setxattr(handle, name, os.getxattr(path, name))
