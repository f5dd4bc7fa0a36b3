"""Colocation groups of a split graph."""

from collections.abc import Iterator, Sequence

import numpy as np

from pesto_cli.data.columns import IntArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.graph_columns import dense_numbers
from pesto_cli.sharding.expansion import Expansion

FOLLOWS_ITS_INPUT = frozenset({"Switch", "RefSwitch", "_SwitchN"})
"""Types of ops that share a device with the producer of their first input."""


def groups(graph: OpGraph, expansion: Expansion) -> IntArray:
    """Return the colocation group of each kept op of an expansion.

    Parts of ops of one group are together if they have equal indices. If an op of the group is
    whole, all parts of the group's other ops are with it. Of the ops that are a part of an op on a
    variable, only the one that takes the handle is with the variable. A Switch that takes the
    merged parts of an op is no longer with this op, but with the op that merges them.
    """
    movers = dict(_movers(graph, expansion))
    found = _inherited(graph, expansion, [*movers])
    for op, source in movers.items():
        found[op] = found[source]
    return dense_numbers(found)


def _movers(graph: OpGraph, expansion: Expansion) -> Iterator[tuple[int, int]]:
    """Yield each Switch whose data does not come from a whole op any more, and the producer."""
    moved, is_copy = set[int](), expansion.spec_of < 0
    for op in np.flatnonzero(is_copy).tolist():
        if graph.types[expansion.origin[op]] in FOLLOWS_ITS_INPUT:
            ref = expansion.ops.inputs[expansion.kept[op]][0]
            source = -1 if ref is None else int(expansion.number[ref[0]])
            if source >= 0 and (not is_copy[source] or source in moved):
                moved.add(op)
                yield op, source


def _inherited(graph: OpGraph, expansion: Expansion, moved: Sequence[int]) -> IntArray:
    """Return the number of each op's group. Ops of one group in the graph stay in one group.

    An op that is alone in its group has a number of its own. moved: ops that leave their groups.
    """
    group, origin, decided = graph.colocation_group, expansion.origin, expansion.decided
    stays = np.ones(graph.num_ops, dtype=np.bool_)
    stays[origin[moved]] = False
    is_shared = stays & (np.bincount(group[stays], minlength=graph.num_groups)[group] > 1)
    stays[list(decided)] = False
    has_whole = np.bincount(group[stays], minlength=graph.num_groups) > 0
    on_variable = np.zeros(graph.num_ops, dtype=np.bool_)
    on_variable[[op for op, each in decided.items() if each.spec.takes_handle]] = True
    inherits = (origin >= 0) & is_shared[origin] & (expansion.is_priced | ~on_variable[origin])
    # A group has one number for its ops if some are whole, else one for each part (-1: of none).
    numbers_each = int(expansion.part.max(initial=-1)) + 3
    place = np.where(has_whole[group[origin]], 0, expansion.part + 2)
    own = graph.num_groups * numbers_each + np.arange(len(origin))
    return np.where(inherits, group[origin] * numbers_each + place, own)
