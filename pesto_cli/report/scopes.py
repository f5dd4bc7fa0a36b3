"""Counting ops by name scope, in a limited number of rows."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

MOST_SCOPES = 12
# A scope with fewer ops is not split into its inner scopes.
FEW_OPS = 8

Path = tuple[str, ...]
OTHERS = "(other scopes)"
DIRECTLY = "*"  # at the end of a path: ops in the scope itself


def scopes_of(names: Iterable[str], most: int = MOST_SCOPES) -> dict[str, str]:
    """Return a scope for every op: `layer_0`, or `layer_0/*` for ops that are in no inner scope.

    Scopes are split into their inner scopes, the largest first, as long as there are at most
    `most`. If there are more outermost scopes, the smallest ones are put together.
    """
    scope = {name: tuple(name.split("/")[:-1]) for name in names}
    found: dict[Path, list[str]] = {(): list(scope)}
    closed: set[Path] = set()
    while open_paths := [path for path in found if path not in closed]:
        path = max(open_paths, key=lambda path: len(found[path]))
        inner: dict[Path, list[str]] = defaultdict(list)
        for name in found[path]:
            inner[(*scope[name], DIRECTLY)[: len(path) + 1]].append(name)
        is_few = len(found[path]) < FEW_OPS or len(found) - 1 + len(inner) > most
        if path and (is_few or all(child[-1] == DIRECTLY for child in inner)):
            closed.add(path)
        else:
            del found[path]
            found |= inner
    largest = sorted(found, key=lambda path: (-len(found[path]), path))
    label = dict.fromkeys(found, OTHERS) if len(found) > most else {}
    label |= {path: "/".join(path) for path in (largest[: most - 1] if label else found)}
    return {name: label[path] for path, members in found.items() for name in members}


def counts_by_scope(columns: Mapping[str, Sequence[str]]) -> list[tuple[str, list[int]]]:
    """Return a row for each scope, with its number of ops by column; the largest sums first."""
    scope_of = scopes_of(name for names in columns.values() for name in names)
    counts = [Counter(map(scope_of.__getitem__, names)) for names in columns.values()]
    rows = [(scope, [count[scope] for count in counts]) for scope in set(scope_of.values())]
    return sorted(rows, key=lambda row: (-sum(row[1]), row[0]))
