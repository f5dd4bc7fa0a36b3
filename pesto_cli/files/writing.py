"""Atomic writes of files; a replaced file keeps its mode and owner."""

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

# Characters of the file name and of the host name in the name of a temporary file, which may have
# 255 bytes.
NAMED_CHARACTERS = 25
# The end of the name of a temporary file.
ENDING = re.compile(r"[0-9a-f]{16}\.tmp")
ATTEMPTS = 100
# Extended attributes that are kept: access control list, SELinux label, the user's own attributes.
ACCESS_LIST = "system.posix_acl_access"
KEPT_ATTRIBUTES = (ACCESS_LIST, "security.selinux", "user.")


def atomic_write(path: Path | str, data: bytes) -> None:
    """Write a file completely or not at all; follow links; write to pipes and devices directly.

    A replaced file keeps its mode (without the set-user-ID and set-group-ID bits) and, if the
    system permits it, its owner, group, access control list and extended attributes. The mode of a
    new file follows from the umask.

    Raises:
        BadInputError: see `destination`.
        BrokenPipeError: the reader of a pipe has closed it.
        EnvironmentFailedError: the file system refused to write.
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
        # Some file systems report an error only at close. The original handle keeps the lock.
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
    """Create a file next to a path, open and locked until its writer ends.

    If it replaces a file, only its owner may read it until it has the mode of that file.
    """
    mode = 0o600 if path.exists() else 0o666
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for _ in range(ATTEMPTS):
        temporary = path.with_name(f"{_beginning(path)}{secrets.token_hex(8)}.tmp")
        handle = os.open(temporary, flags, mode)
        if _locked(handle) is not False and os.fstat(handle).st_nlink:
            return temporary, handle
        os.close(handle)  # another process removed it before it was locked
    raise BlockingIOError(errno.EAGAIN, "other processes remove the file before it is complete")


def _beginning(path: Path) -> str:
    """Return the first part of the names of this host's temporary files for a path."""
    return f".{path.name[:NAMED_CHARACTERS]}.{platform.node()[:NAMED_CHARACTERS]}."


def _locked(handle: int) -> bool | None:
    """Lock a file and return True.

    Return False if another process holds the lock, None if the file system has no locks.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sweep(path: Path) -> None:
    """Remove temporary files of processes that were killed while they wrote this file.

    Such a file is not locked any more. Process numbers in the name would not help, because each
    container has its own.
    """
    beginning = _beginning(path)
    for left in path.parent.glob(f"{glob.escape(beginning)}*"):
        if ENDING.fullmatch(left.name.removeprefix(beginning)):
            with contextlib.suppress(OSError):  # it is somebody else's, or does not exist any more
                _remove_unless_locked(left)


def _remove_unless_locked(left: Path) -> None:
    handle = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if _locked(handle):
            left.unlink()
    finally:
        os.close(handle)


def _keep_access(path: Path, handle: int) -> None:
    """Give a new file the mode, owner and attributes of the file that it replaces.

    Raises:
        FileNotFoundError: there is no file to replace.
    """
    before = path.stat()
    mode = stat.S_IMODE(before.st_mode) & 0o777
    for owner in (before.st_uid, -1):  # only the superuser may give files away
        with contextlib.suppress(OSError):
            os.fchown(handle, owner, before.st_gid)
            break
    if os.fstat(handle).st_gid == before.st_gid:
        _keep_attributes(path, handle)
    else:  # the group is another one: it gets the rights of everybody
        mode &= 0o707 | (mode & 0o007) << 3
    os.fchmod(handle, mode)


def _keep_attributes(path: Path, handle: int) -> None:
    if not hasattr(os, "listxattr"):  # only Linux has this function
        return
    with contextlib.suppress(OSError):  # the folder may have given the new file an access list
        os.removexattr(handle, ACCESS_LIST)
    with contextlib.suppress(OSError):  # the file system may have no attributes
        for name in os.listxattr(path):
            if name.startswith(KEPT_ATTRIBUTES):
                with contextlib.suppress(OSError):
                    os.setxattr(handle, name, os.getxattr(path, name))
