"""Whether an installation works, as a table."""

from collections.abc import Sequence
from typing import Protocol

from pesto_cli.report.layouts import Layouts, Lined, layouts


class Finding(Protocol):
    """Something that was looked at; see `doctor.Finding`."""

    @property
    def name(self) -> str:
        """What."""

    @property
    def verdict(self) -> str:
        """`ok`, `warn` or `fail`."""

    @property
    def found(self) -> str:
        """What is there."""

    @property
    def remedy(self) -> str:
        """What to do, or nothing."""


def checks_table(checks: Sequence[Finding]) -> Layouts:
    """One row a check, with its remedy below what was found."""
    rows: list[list[Lined]] = [
        [each.verdict, each.name, [each.found, f"-> {each.remedy}"] if each.remedy else each.found]
        for each in checks
    ]
    return layouts("", ["", "", "found"], rows, num_text=3)
