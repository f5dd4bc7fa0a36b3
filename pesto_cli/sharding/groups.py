"""Colocation groups of a split graph."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pesto_cli.data.graph import OpGraph
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.new_ops import NewOps

FOLLOWS_ITS_INPUT = frozenset({"Switch", "RefSwitch", "_SwitchN"})
"""Types of ops that share a device with the producer of their first input."""


def groups(
    graph: OpGraph, decided: Mapping[int, Decision], ops: NewOps, kept: Sequence[int]
) -> list[str | None]:
    """Return the colocation group of each op in `kept` as a text; None for a group of one.

    Parts of ops of one group are together if they have equal indices. If an op of the group is
    whole, all parts of the group's other ops are with it. Of the ops that are a part of an op on a
    variable, only the one that takes the handle is with the variable. A Switch that takes the
    merged parts of an op is no longer with this op, but with the op that merges them.
    """
    movers = dict(_movers(graph, ops, kept))
    moved = {ops.origin[op] for op in movers}
    found = _inherited(graph, decided, ops, kept, moved)
    for op, source in movers.items():
        found[op] = found[source] = found.get(source, f"with {source}")
    return [found.get(op) for op in kept]


def _movers(graph: OpGraph, ops: NewOps, kept: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield each Switch whose data does not come from a whole op any more, and the producer."""
    moved, are_ops = set[int](), set(kept)
    for op in kept:
        if ops.specs[op] is None and graph.types[ops.origin[op]] in FOLLOWS_ITS_INPUT:
            ref = ops.inputs[op][0]
            if ref is None or ref[0] not in are_ops:
                continue
            if ops.specs[ref[0]] is not None or ref[0] in moved:
                moved.add(op)
                yield op, ref[0]


def _inherited(
    graph: OpGraph,
    decided: Mapping[int, Decision],
    ops: NewOps,
    kept: Sequence[int],
    moved: set[int],
) -> dict[int, str]:
    """Return the groups of several ops that follow from those of the graph without moved ops."""
    group = graph.colocation_group
    stays = np.ones(graph.num_ops, dtype=np.bool_)
    stays[list(moved)] = False
    is_shared = stays & (np.bincount(group[stays], minlength=graph.num_groups)[group] > 1)
    stays[list(decided)] = False
    with_whole = set(group[stays].tolist())
    origins = np.array(ops.origin, dtype=np.int64)[kept]
    found: dict[int, str] = {}
    for index in np.flatnonzero((origins >= 0) & is_shared[origins]).tolist():
        op, origin = kept[index], int(origins[index])
        if origin in decided and not ops.is_priced[op] and decided[origin].spec.takes_handle:
            continue
        number = group[origin]
        found[op] = f"{number}" if number in with_whole else f"{number} part {ops.part[op]}"
    return found
