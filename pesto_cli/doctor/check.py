"""A check of the installation, and its result."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """The result of a check: FAIL if something required does not work, WARN if optional."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    name: the checked thing. found: version, size or error. remedy: empty if the check passed.
    """

    name: str
    verdict: Outcome
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Probe:
    """One check.

    look: returns what was found; if the check fails, raises an error with a message.
    verdict, remedy: those of the finding if `look` raises.
    """

    name: str
    look: Callable[[], str]
    verdict: Outcome
    remedy: str

    def __call__(self) -> Finding:
        """Run the check; return its finding."""
        try:
            return Finding(self.name, Outcome.OK, self.look())
        except Exception as error:
            return Finding(self.name, self.verdict, first_line(error), self.remedy)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; its type if the message is empty."""
    words = str(error).splitlines() or [type(error).__name__]
    return words[0]
