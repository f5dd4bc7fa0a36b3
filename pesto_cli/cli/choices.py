"""Options whose value is a name of a registry: the valid names, and the package that adds each.

Help and completion list these names without loading the registries, which import numba and take a
second. So the built-in names are read from the source code of the registry.
"""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click

import pesto_cli
from pesto_cli.plugins import GROUPS, PlugIn, offered


@dataclass(frozen=True)
class Choices:
    """The names of a group of entry points. with_argument: names followed by `:` and a value."""

    group: str
    with_argument: Collection[str] = ()

    def names(self) -> tuple[str, ...]:
        """Return all names that can be typed."""
        added = tuple(each.name for each in self.plug_ins())
        return tuple(
            f"{name}:" if name in self.with_argument else name for name in self.builtin + added
        )

    @cached_property
    def builtin(self) -> tuple[str, ...]:
        """The names that pesto itself registers."""
        module, _, name = GROUPS[self.group].registry.partition(":")
        package = Path(pesto_cli.__file__).parent.joinpath(*module.split(".")[1:])
        tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
        return tuple(_keys(tree, name))

    def plug_ins(self) -> tuple[PlugIn, ...]:
        """Return the plug-ins of other packages."""
        return offered(self.group, self.builtin)

    def in_words(self) -> str:
        """Return the built-in names as text: `a, b or c`."""
        return f"{', '.join(self.builtin[:-1])} or {self.builtin[-1]}"

    def of_other_packages(self) -> str:
        """Return the names that packages add, each with its package, as text; empty if none do."""
        return ", ".join(f"{each.name} ({each.package})" for each in self.plug_ins())


def _keys(tree: ast.Module, variable: str) -> Iterator[str]:
    """Yield the keys of the dict literal from which a variable of a module is made."""
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == variable:
            call = statement.value
            assert isinstance(call, ast.Call)
            yield from map(ast.literal_eval, getattr(call.args[1], "keys", ()))


STRATEGIES = Choices("pesto.strategies")
SOLVERS = Choices("pesto.solvers")
MOVES = Choices("pesto.moves")
SOURCES = Choices("pesto.sources", with_argument=("csv", "trace"))


class ChoiceOption(click.Option):
    """An option whose help ends with the names that packages add.

    In its help, `{names}` stands for the built-in ones.
    """

    def __init__(self, *arguments: Any, choices: Choices, **settings: Any) -> None:
        """Make the option. choices: the valid names; all other arguments are those of click."""
        super().__init__(*arguments, **settings)
        self._choices, self._help = choices, self.help or ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help text, with the names of the installed plug-ins."""
        own = self._help.replace("{names}", self._choices.in_words())
        added = self._choices.of_other_packages()
        self.help = f"{own} Of other packages: {added}." if added else own
        return super().get_help_record(ctx)


class SearchCommand(click.Command):
    """A command that searches; its help ends with the search moves that packages add."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of these search moves; no option selects them."""
        if added := MOVES.of_other_packages():
            formatter.write_paragraph()
            formatter.write_text(f"Search moves of other packages: {added}.")
