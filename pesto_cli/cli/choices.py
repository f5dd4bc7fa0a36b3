"""Options whose value is a name of a registry: what may be typed, and which package adds it.

The registries load numba and more. Help and completion must not, so built-in names stand here, and
a test holds them to the registries.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click

from pesto_cli.plugins import PlugIn, offered


@dataclass(frozen=True)
class Choices:
    """Names of a group of entry points. builtin: as they are typed, `csv:` with what follows."""

    group: str
    builtin: tuple[str, ...]

    def names(self) -> Iterable[str]:
        """All names."""
        return (*self.builtin, *(each.name for each in self.plug_ins()))

    def plug_ins(self) -> tuple[PlugIn, ...]:
        """Those of other packages."""
        return offered(self.group, [name.rstrip(":") for name in self.builtin])

    def of_other_packages(self) -> str:
        """The names that packages add, in words; nothing if there are none."""
        added = ", ".join(f"{each.name} ({each.package})" for each in self.plug_ins())
        return f" Of other packages: {added}." if added else ""


STRATEGIES = Choices(
    "pesto.strategies",
    (
        "single",
        "round-robin",
        "expert",
        "m-topo",
        "m-etf",
        "m-sct",
        "heft",
        "fastt",
        "metis",
        "random",
        "pesto",
    ),
)
SOLVERS = Choices("pesto.solvers", ("cpsat", "cbc", "highs"))
SOURCES = Choices("pesto.sources", ("analytic", "run", "csv:", "trace:"))


class ChoiceOption(click.Option):
    """An option whose help ends with the names that packages add."""

    def __init__(self, *arguments: Any, choices: Choices, **settings: Any) -> None:
        """choices: what may be given; all else is as click has it."""
        super().__init__(*arguments, **settings)
        self._choices, self._help = choices, self.help or ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """As click does, with the names that are installed now."""
        self.help = self._help + self._choices.of_other_packages()
        return super().get_help_record(ctx)
