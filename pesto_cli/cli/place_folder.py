"""The folder of `pesto place`: checks of paths, and its lock."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pesto_cli.cli.options import FOLDER_SUFFIX, file_of
from pesto_cli.cli.output import check_output
from pesto_cli.errors import BadInputError, EnvironmentFailedError

FILES = ("graph.meta", "profile.json", "placement.json")


def check_paths(source: str, output: Path, report: Path | None, *inputs: Path | None) -> None:
    """Check all outputs before the work begins."""
    from pesto_cli.files.destination import destination
    from pesto_cli.files.storage import GRAPH_SUFFIXES

    check_output(output, file_of(source), *inputs, endings=GRAPH_SUFFIXES)
    if destination(output).is_stream:
        raise BadInputError(
            f"{output} is not a file, so the files of the single steps cannot be kept next to it; "
            "the path of a file was expected: choose one, or run the single steps."
        )
    folder = output.with_suffix(FOLDER_SUFFIX)
    if folder.exists() and not folder.is_dir():
        raise BadInputError(
            f"{folder} is a file; it was expected to be a folder for the files of the single "
            "steps, or not to exist: choose another name for the output."
        )
    if folder.exists():
        check_output(folder / FILES[0])
    if report is not None:
        kept = [folder, *(folder / name for name in FILES)]
        check_output(report, output, *kept, file_of(source), *inputs)


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Create a folder, and keep other calls from using it until the context ends.

    A new folder is removed again if it is empty then.

    Raises:
        EnvironmentFailedError: another call uses the folder.
    """
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise EnvironmentFailedError(
            f"{folder} is in use by another call of pesto place; wait until that call has ended, "
            "or choose another name for the output."
        ) from None
    except OSError:  # a file system without locks
        pass
    try:
        yield folder
    finally:
        if is_new:
            with suppress(OSError):  # it has files
                folder.rmdir()
        os.close(descriptor)
