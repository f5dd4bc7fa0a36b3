"""The installed plug-ins, found in the metadata of their packages.

Finding them imports no code of the packages. The format is that of
https://packaging.python.org/en/latest/specifications/entry-points/.
"""

import re
import sys
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from traceback import extract_tb

from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.printable import printable

NAME = re.compile(r"\w[\w.-]*")
OP_TYPE = re.compile(r"\w+(>\w+)*")
"""A type of ops of TensorFlow; those of other libraries often begin with a namespace and `>`."""


class UnusableError(Exception):
    """A plug-in cannot be used; the message continues a sentence that begins with its name."""


@dataclass(frozen=True)
class Group:
    """A group of entry points.

    what: the noun for one plug-in of the group. registry: the group's registry, `module:object`.
    name: the pattern of names.
    """

    what: str
    registry: str
    name: re.Pattern[str] = NAME


GROUPS: Mapping[str, Group] = {
    "pesto.strategies": Group("strategy", "pesto_cli.strategies:STRATEGIES"),
    "pesto.solvers": Group("solver", "pesto_cli.ilp:SOLVERS"),
    "pesto.sources": Group("cost source", "pesto_cli.profile:SOURCES"),
    "pesto.rules": Group("sharding rule", "pesto_cli.sharding.rules:RULES", OP_TYPE),
    "pesto.moves": Group("search move", "pesto_cli.refine.moves:MOVES"),
}


@dataclass(frozen=True)
class PlugIn:
    """An entry point of an installed package.

    reference: `module:object`. package: name and version of the package.
    trouble: why the plug-in cannot be used, as found in metadata alone; "" if nothing was found.
    """

    group: str
    name: str
    reference: str
    package: str
    trouble: str = ""

    @property
    def what(self) -> str:
        """The noun for this kind of plug-in, such as "strategy"."""
        return GROUPS[self.group].what if self.group in GROUPS else "plug-in"

    def __str__(self) -> str:
        """Return the plug-in's kind, name and package."""
        return f"{self.what} {self.name!r} of {self.package}"

    def load(self) -> object:
        """Import the object of the entry point.

        Raises:
            UnusableError: the import failed, or the metadata of the plug-in are wrong.
        """
        if self.trouble:
            raise UnusableError(self.trouble)
        try:
            return metadata.EntryPoint(self.name, self.reference, self.group).load()
        except (Exception, SystemExit) as error:
            raise UnusableError(f"cannot be loaded: {in_words(error)}") from error

    def failed(self, why: str) -> EnvironmentFailedError:
        """Return the error that reports to the user why this plug-in cannot be used."""
        return EnvironmentFailedError(
            f"{self} ({self.reference}) {why}; update the package, or uninstall it."
        )


def in_words(error: BaseException) -> str:
    """Return the type of an error, the first line of its message, and its file and line."""
    words = [type(error).__name__, *str(error).splitlines()[:1]]
    frames = extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return ": ".join(filter(None, words)) + place


def plug_ins() -> tuple[PlugIn, ...]:
    """Return all installed plug-ins, ordered by the position of their package in `sys.path`."""
    return _plug_ins(tuple(sys.path))


def offered(group: str, taken: Container[str] = ()) -> tuple[PlugIn, ...]:
    """Return the plug-ins of a group without `trouble` whose names are not in `taken`."""
    return tuple(
        each
        for each in plug_ins()
        if each.group == group and not each.trouble and each.name not in taken
    )


@lru_cache(maxsize=4)
def _plug_ins(path: tuple[str, ...]) -> tuple[PlugIn, ...]:
    """Return the plug-ins of the packages on a path; of two versions of a package, the first."""
    found: dict[str, tuple[PlugIn, ...]] = {}
    for distribution in metadata.distributions(path=list(path)):
        if entries := tuple(_of(distribution)):
            name = re.sub(r"[-_.]+", "-", str(distribution.metadata["Name"])).lower()
            found.setdefault(name, entries)
    entries = tuple(each for of_package in found.values() for each in of_package)
    packages = Counter((each.group, each.name) for each in entries)
    return tuple(
        _ambiguous(each, entries) if packages[each.group, each.name] > 1 else each
        for each in entries
    )


def _of(distribution: metadata.Distribution) -> Iterator[PlugIn]:
    """Yield the plug-ins of a package; most packages have none."""
    try:
        text = distribution.read_text("entry_points.txt") or ""
        points = [*distribution.entry_points] if "pesto." in text else []
    except Exception as error:  # metadata of a package can be malformed in any way
        why = f"cannot be read: {in_words(error)}"
        yield PlugIn("", "entry_points.txt", "its metadata", _package(distribution), why)
        return
    for point in points:
        if point.group.startswith("pesto."):
            package = _package(distribution)
            yield PlugIn(point.group, point.name, point.value, package, _trouble(point))


def _package(distribution: metadata.Distribution) -> str:
    return printable(f"{distribution.metadata['Name']} {distribution.version}")


def _trouble(point: metadata.EntryPoint) -> str:
    if point.group not in GROUPS:
        return f"is in group {point.group!r}; one of {', '.join(GROUPS)} was expected"
    if GROUPS[point.group].name.fullmatch(point.name) is None:
        return "has a name that cannot be typed; letters, digits, '.', '_' and '-' were expected"
    if point.pattern.match(point.value) is None:
        return "refers to nothing; module:object was expected"
    return ""


def _ambiguous(plug_in: PlugIn, entries: tuple[PlugIn, ...]) -> PlugIn:
    """Return the plug-in, with the trouble that other packages use the same name."""
    same = [e for e in entries if (e.group, e.name) == (plug_in.group, plug_in.name)]
    others = " and ".join(each.package for each in same if each is not plug_in)
    return replace(plug_in, trouble=f"has the same name as that of {others}")
