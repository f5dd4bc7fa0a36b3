"""What commands print, and the checks of what they write."""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.printable import printable

ENDINGS = frozenset(
    {
        *(".html", ".json", ".meta", ".npz", ".pb", ".pbtxt", ".pdf"),
        *(".pesto", ".png", ".py", ".svg", ".toml", ".txt"),
    }
)
"""Endings of what commands read and write, and of what a user may expect them to write."""


def check_output(output: Path, *others: Path | None, endings: Sequence[str] = ()) -> None:
    """Check that a command can write its result; commands call this before they begin.

    others: the other files that the command reads or writes.
    endings: those of files of this kind, the usual one first; empty for any.

    Raises:
        BadInputError: the output is one of the other files, its folder does not exist, or its
            ending is that of files of another kind.
        EnvironmentFailedError: the file system refuses to write there.
    """
    from pesto_cli.files.destination import destination

    place = destination(output)
    taken = [os.path.realpath(path) for path in others if path is not None]
    if os.path.realpath(output) in taken:
        raise BadInputError(
            f"{output} is also an input or another output, and would be lost; choose another name."
        )
    if place.is_stream:
        if place.is_joined_to(1):
            _redirect_prints_to_stderr(output)
        return
    if endings and output.suffix in ENDINGS and output.suffix not in endings:
        raise BadInputError(
            f"{output} ends in {output.suffix}, as files of another kind do; a name that ends in "
            f"{' or '.join(endings)} was expected, such as {output.with_suffix(endings[0])}: "
            "rename it."
        )
    try:
        tempfile.TemporaryFile(dir=place.path.parent).close()  # as files are written
    except OSError as error:
        raise EnvironmentFailedError(
            f"{output} cannot be written: {error.strerror}; free space or choose another path."
        ) from error


def _redirect_prints_to_stderr(output: Path) -> None:
    """Print to stderr instead of stdout, because the output file is written to stdout.

    Raises:
        BadInputError: JSON was requested, which is printed to stdout.
    """
    context = click.get_current_context()
    if context.params.get("as_json") or context.params.get("form", "text") != "text":
        raise BadInputError(
            f"{output} is the standard output, and JSON is printed there too; choose another path."
        )
    context.with_resource(redirect_stdout(sys.stderr))


def echo(*lines: str, err: bool = False) -> None:
    """Print lines, and escape unprintable characters, which names from files may contain."""
    click.echo("\n".join(map(printable, lines)), err=err)


def echo_text(text: str, err: bool = False) -> None:
    """Print a text of one line or several, as `echo` does."""
    echo(*text.split("\n"), err=err)


def echo_json(value: Any) -> None:
    """Print a value to stdout as JSON."""
    click.echo(json.dumps(value, indent=2))
