"""Named objects of one kind: pesto's own, and those of installed packages."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, TypeVar, cast

from pesto_cli.errors import EnvironmentFailedError, PestoError, about, unknown_name
from pesto_cli.plugins.installed import (
    GROUPS,
    PlugIn,
    UnusableError,
    in_words,
    plug_ins,
)
from pesto_cli.printable import logger

_log = logger(__name__)
Kind = TypeVar("Kind")

# What an object lacks to be of a kind, in words; nothing if it is.
Misfit = Callable[[object], str]


class Registry(Mapping[str, Kind]):
    """Objects by name: built-in ones first, then those of an entry-point group.

    Names are read from metadata; a plug-in is imported, and checked, when it is first looked up.
    A built-in object keeps its name. Of two packages that add the same name, neither is used.
    """

    def __init__(self, group: str, builtin: Mapping[str, Kind], misfit: Misfit) -> None:
        """group: a name in `GROUPS`. misfit: tells what a plug-in's object lacks."""
        self.group, self.what = group, GROUPS[group].what
        self.builtin = MappingProxyType(dict(builtin))
        self._misfit, self._loaded = misfit, dict[PlugIn, Kind]()

    def __getitem__(self, name: str) -> Kind:
        """The object of a name.

        Raises:
            KeyError: there is none.
            EnvironmentFailedError: it is a plug-in's that cannot be used.
        """
        if name in self.builtin:
            return self.builtin[name]
        plug_in = self.plug_in(name)
        if plug_in is None:
            raise KeyError(name)
        try:
            return self._load(plug_in)
        except UnusableError as error:
            raise plug_in.failed(str(error)) from error.__cause__

    def __iter__(self) -> Iterator[str]:
        """Names; those of plug-ins may yet turn out to be of no use."""
        return iter(self._names())

    def __len__(self) -> int:
        """How many names there are."""
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        """Whether there is a name; nothing is loaded."""
        return name in self._names()

    def _names(self) -> dict[str, None]:
        added = (each.name for each in plug_ins() if each.group == self.group)
        return dict.fromkeys((*self.builtin, *added))

    def plug_in(self, name: str) -> PlugIn | None:
        """Where an object comes from, if it is not built in."""
        same = self._of_name(name)
        return same[0] if same and name not in self.builtin else None

    def find(self, name: str) -> Kind:
        """The object of a name that a user gave.

        Raises:
            BadInputError: there is none.
            EnvironmentFailedError: it is a plug-in's that cannot be used.
        """
        if name in self.builtin:
            for plug_in in self._of_name(name):
                _tell(f"{plug_in} is not used, as pesto has a {self.what} of this name.")
        elif self.plug_in(name) is None:
            raise unknown_name(self.what, name, self)
        return self[name]

    def usable(self) -> Mapping[str, Kind]:
        """All that can be used; each plug-in that cannot be is told in a warning."""
        found = dict(self.builtin)
        for name in [name for name in self if name not in found]:
            try:
                found[name] = self[name]
            except EnvironmentFailedError as error:
                _tell(f"left out: {error}")
        return found

    @contextmanager
    def at_work(self, name: str) -> Iterator[Kind]:
        """The object of a name, where errors within are told as those of its package.

        Raises:
            BadInputError: there is none.
            EnvironmentFailedError: it is a plug-in's that cannot be used, or that raised an error
                other than PestoError.
        """
        found, plug_in = self.find(name), self.plug_in(name)
        if plug_in is None:
            yield found
            return
        try:
            with about(plug_in):
                yield found
        except (PestoError, MemoryError):
            raise
        except Exception as error:
            raise plug_in.failed(f"failed: {in_words(error)}") from error

    def check(self, plug_in: PlugIn) -> None:
        """Load a plug-in of this group.

        Raises:
            UnusableError: it cannot be used.
        """
        if plug_in.name in self.builtin:
            raise UnusableError(f"has the name of pesto's own {plug_in.what}, which is used")
        self._load(plug_in)

    def _load(self, plug_in: PlugIn) -> Kind:
        if plug_in not in self._loaded:
            thing = plug_in.load()
            try:
                lacking = self._misfit(thing)
            except Exception as error:  # whatever its attributes do
                lacking = in_words(error)
            if lacking:
                raise UnusableError(f"cannot be used: {lacking}")
            self._loaded[plug_in] = cast(Kind, thing)
        return self._loaded[plug_in]

    def _of_name(self, name: str) -> list[PlugIn]:
        return [each for each in plug_ins() if (each.group, each.name) == (self.group, name)]


@cache
def _tell(what: str) -> None:
    """Warn, once for a process."""
    _log.warning("%s", what)


def registry_of(plug_in: PlugIn) -> Registry[Any]:
    """The registry of a plug-in's group, whose modules are imported now.

    Raises:
        UnusableError: there is no such group.
    """
    if plug_in.group not in GROUPS:
        raise UnusableError(plug_in.trouble)
    registry: Registry[Any] = resolve_name(GROUPS[plug_in.group].registry)
    return registry


def called_with(*arguments: str) -> Misfit:
    """The kind of what is called with so many positional arguments; their names are for errors."""
    expected = f"an object that is called with ({', '.join(arguments)}) was expected"

    def misfit(thing: object) -> str:
        if isinstance(thing, type) or not callable(thing):
            found = "a class" if isinstance(thing, type) else f"a {type(thing).__name__}"
            return f"{found} was found, {expected}"
        try:
            inspect.signature(thing).bind(*arguments)
        except TypeError as error:
            return f"{error}; {expected}"
        except ValueError:  # some functions in C tell no signature
            return ""
        return ""

    return misfit


def answered(kind: type[Kind], answer: object) -> Kind:
    """An answer, if it is of the kind that was expected.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(answer, kind):
        raise TypeError(f"it answered a {type(answer).__name__}; a {kind.__name__} was expected")
    return answer
