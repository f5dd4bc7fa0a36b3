"""What can go wrong, each kind with the exit code of the command line.

A message names the thing, what was found, what was expected and the remedy, in that order.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import ClassVar

from pesto_cli.printable import printable

# Exit codes of what is no error of these kinds.
INTERRUPTED = 130
READER_LEFT = 141
BUG = 123


class PestoError(Exception):
    """An error whose message, one line, is meant for the user as it stands.

    What takes several lines, as the words of another program, is in its notes.
    """

    exit_code: ClassVar[int] = 2

    def __str__(self) -> str:
        """The message, in which names from files are printable."""
        return printable(super().__str__())


class BadInputError(PestoError):
    """Bad usage, or an input that cannot be read or does not fit the others."""

    exit_code = 2


class NotAsPlannedError(PestoError):
    """A check found that what is there is not what was planned."""

    exit_code = 1


class InfeasibleError(PestoError):
    """No placement exists: memory, or an op or colocation group that no device can take."""

    exit_code = 3


class NoSolutionError(PestoError):
    """The time limit passed before a first solution was found."""

    exit_code = 4


class EnvironmentFailedError(PestoError):
    """Something around pesto failed: a subprocess died, a port is taken, the disk is full."""

    exit_code = 5


def with_words(kind: type[PestoError], text: str) -> PestoError:
    """An error whose message is the first line of a text; the others become a note.

    For texts with words of another program, which have to be printable already.
    """
    message, _, words = text.partition("\n")
    error = kind(message)
    if words:
        error.add_note(words)
    return error


@contextmanager
def about(what: object) -> Iterator[None]:
    """Begin the message of an error within with what it is about, such as a file."""
    try:
        yield
    except PestoError as error:
        named = type(error)(f"{what}: {error}")
        for note in getattr(error, "__notes__", ()):
            named.add_note(note)
        raise named from error.__cause__


def likely(name: str, known: Iterable[str]) -> str:
    """Which of the known names was meant, as a sentence with a space before it; or nothing."""
    near = get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> BadInputError:
    """The error for a name that is none of those there are."""
    known = tuple(known)
    return BadInputError(
        f"{what} {name!r} is unknown; one of {', '.join(known)} was expected.{likely(name, known)}"
    )
