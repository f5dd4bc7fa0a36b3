"""A check, what it found, and what it means if it fails."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """FAIL is of something that is needed, WARN of something that one may do without."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. remedy: empty where it works."""

    name: str
    verdict: Outcome
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Probe:
    """How to look at something.

    look: gives what was found, or raises in words. verdict, remedy: if it raises.
    """

    name: str
    look: Callable[[], str]
    verdict: Outcome
    remedy: str

    def __call__(self) -> Finding:
        """Look."""
        try:
            return Finding(self.name, Outcome.OK, self.look())
        except Exception as error:
            return Finding(self.name, self.verdict, first_line(error), self.remedy)


def first_line(error: Exception) -> str:
    """Of its message, or what it is called if it has none."""
    words = str(error).splitlines() or [type(error).__name__]
    return words[0]
