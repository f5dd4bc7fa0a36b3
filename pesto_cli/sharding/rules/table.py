"""Tables of the sharding rules in Markdown, made from the rules themselves.

`python -m pesto_cli.sharding.rules.table docs/splitting.md` writes one into that page.
"""

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from pkgutil import iter_modules
from textwrap import wrap
from types import ModuleType

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding import rules
from pesto_cli.sharding.alternative import Rule
from pesto_cli.sharding.layouts import Layout
from pesto_cli.sharding.rules import alternatives

# The lines of a page between which the table of families stands.
FIRST_LINE, LAST_LINE = "<!-- rules -->\n", "<!-- end of rules -->\n"
# Characters of a line of op types: long lines would make the other columns narrow.
WIDTH = 46


def with_families(page: str) -> str:
    """Return the text of a page with the table of families between its two lines."""
    section = f"{FIRST_LINE}\n{families()}\n\n{LAST_LINE}"
    return re.sub(f"{FIRST_LINE}.*?{LAST_LINE}", lambda _: section, page, flags=re.DOTALL)


def families() -> str:
    """Return the op types of each family and rule, with what the rule says about its factors."""
    types: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for module in families_of_rules():
        family = module.__name__.rpartition(".")[2].replace("_", " ")
        for op_type, rule in module.RULES.items():
            types[family, _factors(rule, module)].append(f"`{op_type}`")
    rows = [
        (family, rule, "<br>".join(wrap(", ".join(listed), WIDTH)))
        for (family, rule), listed in types.items()
    ]
    return _table(("family", "factors", "op types"), rows)


def layouts(spec: OpSpec) -> str:
    """Return the alternatives of an op, with the layouts of its inputs and outputs."""
    rows = [
        (alternative.name, _listed(alternative.inputs), _listed(alternative.outputs))
        for alternative in alternatives(spec)
    ]
    return _table(("factor", "inputs", "outputs"), rows)


def families_of_rules() -> Iterator[ModuleType]:
    """Yield the modules with the rules of each family, by name."""
    for each in sorted(iter_modules(rules.__path__), key=attrgetter("name")):
        module = import_module(f"{rules.__name__}.{each.name}")
        if hasattr(module, "RULES"):
            yield module


def _factors(rule: Rule, family: ModuleType) -> str:
    """Return the first paragraph about a rule, or about its family if it has no docstring."""
    of_family = (inspect.getdoc(family) or "").partition("\n\n")[2]
    text = inspect.getdoc(rule.func if isinstance(rule, partial) else rule) or of_family
    line = " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")
    # Other columns have the op type, and the title "factors".
    line = re.sub(r"^(\w+\. )?Factors?: ", "", line)
    return line[:1].upper() + line[1:]


def _listed(operands: Iterable[Layout]) -> str:
    return ", ".join(str(layout) for layout in operands)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (header, tuple("---" for _ in header), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    shown = Path(sys.argv[1])
    shown.write_text(with_families(shown.read_text()))
