"""Tables of the sharding rules in Markdown, made from the rules themselves."""

import inspect
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Rule
from pesto_cli.sharding.layouts import Layout
from pesto_cli.sharding.rules import RULES, alternatives


def families() -> str:
    """Return the op types of each family and rule, with what the rule says about its factors."""
    types: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for op_type, rule in RULES.builtin.items():
        types[_family(rule), _factors(rule)].append(f"`{op_type}`")
    rows = sorted((family, ", ".join(types[family, rule]), rule) for family, rule in types)
    return _table(("family", "op types", "factors"), rows)


def layouts(spec: OpSpec) -> str:
    """Return the alternatives of an op, with the layouts of its inputs and outputs."""
    rows = [
        (alternative.name, _listed(alternative.inputs), _listed(alternative.outputs))
        for alternative in alternatives(spec)
    ]
    return _table(("factor", "inputs", "outputs"), rows)


def _family(rule: Rule) -> str:
    return str(_function(rule).__module__).rpartition(".")[2].replace("_", " ")


def _factors(rule: Rule) -> str:
    """Return the first paragraph about a rule, or about its family if it has no docstring."""
    function = _function(rule)
    of_family = inspect.getdoc(sys.modules[function.__module__]) or ""
    text = inspect.getdoc(function) or of_family.partition("\n\n")[2]
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def _function(rule: Rule) -> Any:
    return rule.func if isinstance(rule, partial) else rule


def _listed(operands: Iterable[Layout]) -> str:
    return ", ".join(str(layout) for layout in operands)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (header, tuple("---" for _ in header), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
