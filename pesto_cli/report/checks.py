"""A table of the checks of an installation."""

from collections.abc import Sequence
from typing import Protocol

from pesto_cli.report.layouts import Layouts, Lined, layouts


class Finding(Protocol):
    """The result of a check; see `doctor.Finding`."""

    @property
    def name(self) -> str:
        """The checked thing."""

    @property
    def verdict(self) -> str:
        """`ok`, `warn` or `fail`."""

    @property
    def found(self) -> str:
        """What was found."""

    @property
    def remedy(self) -> str:
        """What the user should do; may be empty."""


def checks_table(checks: Sequence[Finding]) -> Layouts:
    """Return a table with a row for each check; the remedy is below what was found."""
    rows: list[list[Lined]] = [
        [each.verdict, each.name, [each.found, f"-> {each.remedy}"] if each.remedy else each.found]
        for each in checks
    ]
    return layouts("", ["", "", "found"], rows, num_text=3)
