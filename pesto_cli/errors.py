"""The errors of pesto; each class has an exit code of the command line.

A message names the thing, what was found, what was expected and the remedy, in that order.
"""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import ClassVar

from pesto_cli.printable import printable

# Exit codes without a class of their own: Ctrl-C, a closed pipe (SIGPIPE), an unexpected exception.
INTERRUPTED = 130
READER_LEFT = 141
BUG = 123


class SigtermReceived(SystemExit):
    """The process received SIGTERM; its exit code is that of a process which SIGTERM ends."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class PestoError(Exception):
    """An error with a message of one line that is shown to the user unchanged.

    Text of several lines, such as the message of another program, is in its notes.
    """

    exit_code: ClassVar[int] = 2

    def __str__(self) -> str:
        """Return the message with all characters printable."""
        return printable(super().__str__())


class BadInputError(PestoError):
    """Wrong usage, or an input that cannot be read or does not match the other inputs."""

    exit_code = 2


class UnfitError(BadInputError):
    """A strategy cannot be used for a problem; `compare` with all strategies leaves it out."""


class NotAsPlannedError(PestoError):
    """A check found a difference between the plan and what was applied or run."""

    exit_code = 1


class InfeasibleError(PestoError):
    """No placement exists: memory is too small, or no device can run an op or colocation group."""

    exit_code = 3


class NoSolutionError(PestoError):
    """The time limit passed before a first solution was found."""

    exit_code = 4


class OutOfTimeError(UnfitError):
    """The time limit is too short for a strategy, which `compare` and a search then leave out."""

    exit_code = NoSolutionError.exit_code


class EnvironmentFailedError(PestoError):
    """The environment failed: a subprocess died, a port is in use, or the disk is full."""

    exit_code = 5


def with_words(kind: type[PestoError], text: str) -> PestoError:
    """Return an error with the first line of a text as its message; the other lines are a note.

    The text may contain messages of another program; it must be printable already.
    """
    message, _, words = text.partition("\n")
    error = kind(message)
    if words:
        error.add_note(words)
    return error


@contextmanager
def about(what: object) -> Iterator[None]:
    """Prefix the messages of errors raised in this context with their subject, such as a file."""
    try:
        yield
    except PestoError as error:
        named = type(error)(f"{what}: {error}")
        for note in getattr(error, "__notes__", ()):
            named.add_note(note)
        raise named from error.__cause__


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean NAME?" with the closest known name, or "" if none is close.

    Upper and lower case are alike.
    """
    names = {each.casefold(): each for each in known}
    near = get_close_matches(name.casefold(), names, n=1)
    return f" Did you mean {names[near[0]]!r}?" if near else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> BadInputError:
    """Return the error for a name that is not among the known names."""
    known = tuple(known)
    return BadInputError(
        f"{what} {name!r} is unknown; one of {', '.join(known)} was expected."
        f"{did_you_mean(name, known)}"
    )
