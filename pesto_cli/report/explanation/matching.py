"""Finding ops by name, pattern or scope."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Compound
from pesto_cli.errors import BadInputError

NUM_SUGGESTED = 5


def matching_ops(
    graph: OpGraph, wanted: str, split: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> list[str]:
    """Return the op of this name, or all ops that match a pattern with `*` or have this prefix.

    split: the ops that were split, and the names of what each became; an op that was split matches
        as all of these.

    Raises:
        BadInputError: no op matches; the message has similar names.
    """
    if wanted in split or wanted in graph.index_of:
        return [wanted]
    is_pattern = any(letter in wanted for letter in "*?[")
    pattern = wanted if is_pattern else f"{wanted}*"
    became = [new for name, ops in split.items() if fnmatchcase(name, pattern) for new in ops]
    found = dict.fromkeys([name for name in graph.names if fnmatchcase(name, pattern)] + became)
    if found:
        return list(found)
    alike = _alike([*split, *graph.names], wanted)
    remedy = f"did you mean {', '.join(map(repr, alike))}?" if alike else "see the profile's names."
    loops = " or ".join(map(repr, _loops_around(graph, wanted)))
    inside = f" It may be inside the while loop {loops}, which is one op here." if loops else ""
    raise BadInputError(
        f"the profile has no op {wanted!r}; a name, a pattern such as '*/MatMul*' or a prefix of "
        f"names was expected: {remedy}{inside}"
    )


def _loops_around(graph: OpGraph, wanted: str) -> list[str]:
    """Return the while loops of the innermost scope that has loops and contains the name."""
    is_loop = (graph.labels.compound == Compound.LOOP).tolist()
    loops = [
        name
        for name, loop in zip(graph.names, is_loop, strict=True)
        if loop and "/" in name and wanted.startswith(f"{_scope(name)}/")
    ]
    innermost = max(map(_scope, loops), key=len, default="")
    return [name for name in loops if _scope(name) == innermost][:NUM_SUGGESTED]


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _alike(names: Sequence[str], wanted: str) -> list[str]:
    within = [name for name in names if wanted.lower().strip("*") in name.lower()]
    return sorted(within, key=len)[:NUM_SUGGESTED] or get_close_matches(
        wanted, names, NUM_SUGGESTED
    )
