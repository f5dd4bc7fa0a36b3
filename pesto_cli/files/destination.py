"""The destination of an output: a file, a pipe, a device or a descriptor of the process."""

import fcntl
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pesto_cli.errors import BadInputError, EnvironmentFailedError

# Linux follows at most 40 symbolic links in one path.
MOST_LINKS = 40
# Mode bits of a folder to which its group or everybody may write.
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Mode bits of a folder such as /tmp: everybody may write to it, but remove only their own files.
SHARED_BY_ALL = stat.S_ISVTX | stat.S_IWOTH


@dataclass(frozen=True)
class Destination:
    """The destination of an output.

    path: path of the file itself, with symbolic links followed.
    is_stream: whether the output is a pipe, a device or a descriptor. A stream is written to
        directly; a file is replaced.
    descriptor: number of the descriptor in this process, such as 1 for `/dev/stdout`; else None.
    """

    path: Path
    is_stream: bool = False
    descriptor: int | None = None

    def opened(self, mode: str) -> IO[bytes]:
        """Return the open file; `mode` is `wb` or `ab`."""
        if self.descriptor is not None:
            return os.fdopen(os.dup(self.descriptor), mode)
        # All links were followed before. A link that appears now was made by somebody else.
        more = 0 if self.is_stream else os.O_NOFOLLOW
        return open(self.path, mode, opener=lambda path, flags: os.open(path, flags | more, 0o666))

    def is_joined_to(self, descriptor: int) -> bool:
        """Return whether this destination and a descriptor of this process have the same reader."""
        try:
            here = self.path.stat() if self.descriptor is None else os.fstat(self.descriptor)
            there = os.fstat(descriptor)
        except OSError:
            return False
        is_joint = self.descriptor is not None or stat.S_ISFIFO(here.st_mode)
        return is_joint and os.path.samestat(here, there)


def destination(path: Path | str) -> Destination:
    """Find the destination of an output, without opening it.

    Raises:
        BadInputError: the folder does not exist; the path is a folder; its links form a circle; a
            descriptor is not open for writing; or the path is a link, pipe or file of another user
            in a folder to which others may write.
        EnvironmentFailedError: the file system refuses the information.
    """
    try:
        return _destination(Path(path))
    except OSError as error:
        raise EnvironmentFailedError(
            f"{path} cannot be written: {error.strerror}; choose another path."
        ) from error


def _destination(path: Path) -> Destination:
    file, descriptor = _followed(path)
    if descriptor is not None:
        _check_descriptor(path, descriptor)
        return Destination(file, is_stream=True, descriptor=descriptor)
    if file.is_dir():
        raise BadInputError(f"{path} is a folder; a file name was expected.")
    if not file.exists():
        return Destination(file)
    is_stream = not file.is_file() or _is_of_a_process(file.parent)
    if not _is_of_a_process(file.parent):
        _check_owner(file)
    return Destination(file, is_stream)


def _followed(path: Path) -> tuple[Path, int | None]:
    """Return the path with links followed, and its number if it is a descriptor of this process."""
    whole = path
    for _ in range(MOST_LINKS):
        folder = Path(os.path.realpath(path.parent))
        if not folder.is_dir():
            raise BadInputError(f"{whole}: folder {folder} does not exist; create it first.")
        path = folder / path.name
        if path.name.isdecimal() and str(folder) == os.path.realpath("/dev/fd"):
            return path, int(path.name)
        if not path.is_symlink() or _is_of_a_process(folder):
            return path, None
        _check_owner(path)
        path = folder / path.readlink()
    raise BadInputError(f"{whole} is a link that leads in a circle; choose another path.")


def _is_of_a_process(folder: Path) -> bool:
    """Return whether a folder has a process's descriptors, which look like links but are not."""
    return folder.parts[:2] == ("/", "proc") and folder.name == "fd"


def _check_descriptor(path: Path, descriptor: int) -> None:
    try:
        access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError:
        raise BadInputError(
            f"{path}: descriptor {descriptor} is not open; open it, as in {descriptor}>FILE."
        ) from None
    if access == os.O_RDONLY:
        raise BadInputError(
            f"{path}: descriptor {descriptor} is open for reading only; open it for writing, as in "
            f"{descriptor}>FILE."
        )


def _check_owner(path: Path) -> None:
    """Refuse a link or file of another user in a folder that others may write to.

    Another user might have put it there to receive or redirect the output. Linux has the same rules
    for opening a file (`fs.protected_symlinks`, `fs.protected_fifos`, `fs.protected_regular`), but
    not for replacing the target of a link.
    """
    folder, found = path.parent.stat(), path.lstat()
    if stat.S_ISREG(found.st_mode):
        is_shared = folder.st_mode & SHARED_BY_ALL == SHARED_BY_ALL
    else:
        is_shared = bool(folder.st_mode & OTHERS_MAY_WRITE)
    if is_shared and found.st_uid not in (os.geteuid(), folder.st_uid):
        kind = "link" if stat.S_ISLNK(found.st_mode) else "file"
        raise BadInputError(
            f"{path} is a {kind} of another user (number {found.st_uid}) in a folder that others "
            "may write to, so pesto does not write to it; choose another path."
        )
