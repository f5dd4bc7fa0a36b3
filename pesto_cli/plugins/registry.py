"""Registries of named objects of one kind: built-in objects, and those of installed packages."""

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

# Returns why an object is not of the expected kind; "" if it is.
Misfit = Callable[[object], str]


class Registry(Mapping[str, Kind]):
    """Objects by name: built-in objects first, then those of an entry-point group.

    Names are read from metadata; a plug-in is imported and checked at its first lookup. A built-in
    object takes precedence over a plug-in of its name. If two packages add one name, neither is
    used.
    """

    def __init__(self, group: str, builtin: Mapping[str, Kind], misfit: Misfit) -> None:
        """group: a name in `GROUPS`. misfit: the check of a plug-in's object."""
        self.group, self.what = group, GROUPS[group].what
        self.builtin = MappingProxyType(dict(builtin))
        self._misfit, self._loaded = misfit, dict[PlugIn, Kind]()

    def __getitem__(self, name: str) -> Kind:
        """Return the object with a name.

        Raises:
            KeyError: no object has this name.
            EnvironmentFailedError: the object comes from a plug-in that cannot be used.
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
        """Iterate over the names, including plug-ins that may turn out to be unusable."""
        return iter(self._names())

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        """Return whether a name exists, without loading its object."""
        return name in self.builtin or any(each.name == name for each in self._added())

    def _names(self) -> dict[str, None]:
        return dict.fromkeys((*self.builtin, *(each.name for each in self._added())))

    def _added(self) -> list[PlugIn]:
        return [each for each in plug_ins() if each.group == self.group]

    def plug_in(self, name: str) -> PlugIn | None:
        """Return the plug-in that adds a name; None if the name is built in or unknown."""
        same = self._of_name(name)
        return same[0] if same and name not in self.builtin else None

    def find(self, name: str) -> Kind:
        """Return the object with a name that a user gave.

        Raises:
            BadInputError: no object has this name.
            EnvironmentFailedError: the object comes from a plug-in that cannot be used.
        """
        if name in self.builtin:
            for plug_in in self._of_name(name):
                _warn_once(f"{plug_in} is not used, because pesto has a {self.what} of this name.")
        elif self.plug_in(name) is None:
            raise unknown_name(self.what, name, self)
        return self[name]

    def usable(self) -> Mapping[str, Kind]:
        """Return all usable objects by name; warn about each plug-in that cannot be used."""
        found = dict(self.builtin)
        for name in [name for name in self if name not in found]:
            try:
                found[name] = self[name]
            except EnvironmentFailedError as error:
                _warn_once(f"left out: {error}")
        return found

    @contextmanager
    def at_work(self, name: str) -> Iterator[Kind]:
        """Provide the object with a name; errors in this context name its package.

        Raises:
            BadInputError: no object has this name.
            EnvironmentFailedError: the object comes from a plug-in that cannot be used, or that
                raised an error other than PestoError.
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
        except (Exception, SystemExit) as error:
            raise plug_in.failed(f"failed: {in_words(error)}") from error

    def check(self, plug_in: PlugIn) -> None:
        """Load a plug-in of this group.

        Raises:
            UnusableError: the plug-in cannot be used.
        """
        if plug_in.name in self.builtin:
            raise UnusableError(f"has the name of pesto's own {plug_in.what}, which is used")
        self._load(plug_in)

    def _load(self, plug_in: PlugIn) -> Kind:
        if plug_in not in self._loaded:
            thing = plug_in.load()
            try:
                lacking = self._misfit(thing)
            except Exception as error:  # access to its attributes can raise anything
                lacking = in_words(error)
            if lacking:
                raise UnusableError(f"cannot be used: {lacking}")
            self._loaded[plug_in] = cast(Kind, thing)
        return self._loaded[plug_in]

    def _of_name(self, name: str) -> list[PlugIn]:
        return [each for each in self._added() if each.name == name]


@cache
def _warn_once(what: str) -> None:
    """Log a warning, once in a process."""
    _log.warning("%s", what)


def registry_of(plug_in: PlugIn) -> Registry[Any]:
    """Return the registry of a plug-in's group; its modules are imported by this call.

    Raises:
        UnusableError: the group does not exist.
    """
    if plug_in.group not in GROUPS:
        raise UnusableError(plug_in.trouble)
    registry: Registry[Any] = resolve_name(GROUPS[plug_in.group].registry)
    return registry


def called_with(*arguments: str) -> Misfit:
    """Return a check that an object can be called with these arguments, given by position.

    The names of the arguments are used in messages only.
    """
    expected = f"an object that is called with ({', '.join(arguments)}) was expected"

    def misfit(thing: object) -> str:
        if isinstance(thing, type) or not callable(thing):
            found = "a class" if isinstance(thing, type) else f"a {type(thing).__name__}"
            return f"{found} was found, {expected}"
        try:
            inspect.signature(thing).bind(*arguments)
        except TypeError as error:
            return f"{error}; {expected}"
        except ValueError:  # some functions in C have no signature
            return ""
        return ""

    return misfit


def answered(kind: type[Kind], answer: object) -> Kind:
    """Return the result of a plug-in unchanged, after a check of its type.

    Raises:
        TypeError: the result has another type.
    """
    if not isinstance(answer, kind):
        raise TypeError(f"it returned a {type(answer).__name__}; a {kind.__name__} was expected")
    return answer
