"""Tables of the sharding rules in Markdown, made from the rules themselves."""

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from operator import attrgetter
from pkgutil import iter_modules
from types import ModuleType

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding import rules
from pesto_cli.sharding.alternative import Rule
from pesto_cli.sharding.layouts import Layout
from pesto_cli.sharding.rules import alternatives


def families() -> str:
    """Return the op types of each family and rule, with what the rule says about its factors."""
    types: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for module in _modules():
        family = module.__name__.rpartition(".")[2].replace("_", " ")
        for op_type, rule in module.RULES.items():
            types[family, _factors(rule, module)].append(f"`{op_type}`")
    rows = [(family, ", ".join(listed), rule) for (family, rule), listed in types.items()]
    return _table(("family", "op types", "factors"), rows)


def layouts(spec: OpSpec) -> str:
    """Return the alternatives of an op, with the layouts of its inputs and outputs."""
    rows = [
        (alternative.name, _listed(alternative.inputs), _listed(alternative.outputs))
        for alternative in alternatives(spec)
    ]
    return _table(("factor", "inputs", "outputs"), rows)


def _modules() -> Iterator[ModuleType]:
    """Yield the modules of the families, by name."""
    for each in sorted(iter_modules(rules.__path__), key=attrgetter("name")):
        module = import_module(f"{rules.__name__}.{each.name}")
        if hasattr(module, "RULES"):
            yield module


def _factors(rule: Rule, family: ModuleType) -> str:
    """Return the first paragraph about a rule, or about its family if it has no docstring."""
    of_family = (inspect.getdoc(family) or "").partition("\n\n")[2]
    text = inspect.getdoc(rule.func if isinstance(rule, partial) else rule) or of_family
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def _listed(operands: Iterable[Layout]) -> str:
    return ", ".join(str(layout) for layout in operands)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (header, tuple("---" for _ in header), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
