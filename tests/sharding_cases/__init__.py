"""Cases of every op type that has a sharding rule: a file for each family, with its `CASES`."""

from importlib import import_module
from pkgutil import iter_modules

from hypothesis.strategies import SearchStrategy
from sharding_ops import Case

CASES: dict[str, SearchStrategy[Case]] = {}
for _module in iter_modules(__path__):
    CASES |= import_module(f"{__name__}.{_module.name}").CASES
