"""Check whether a step trains, that is, whether its fetches update a variable."""

import re
from typing import Any

from pesto_cli.graphdef.fetches import node_name, step_protos

# Types of ops with which optimisers apply gradients, and of all ops that write a variable.
APPLYING = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*")
UPDATING = re.compile(
    rf"{APPLYING.pattern}|Assign\w*|\w*StridedSliceAssign|(Resource)?Scatter(?!Nd$)\w+"
)


def untrained(meta: Any) -> str | None:
    """Return a remark on a step that updates no variable, with the likely train op; else None.

    An update in any function of the graph's library counts, whether or not the step calls it.
    """
    graph_def = meta.graph_def
    inner = (node for function in graph_def.library.function for node in function.node_def)
    if any(UPDATING.fullmatch(node.op) for node in (*inner, *step_protos(meta))):
        return None
    found = _train_op(graph_def)
    remedy = f"--fetch {found}" if found else "--fetch NAME, or another --signature of a SavedModel"
    return (
        "these fetches train nothing: they update no variable. For a training step, name its "
        f"train op: {remedy}"
    )


def _train_op(graph_def: Any) -> str | None:
    """Return the name of an op without consumers that depends on an optimiser's ops, or None."""
    takers: dict[str, list[str]] = {}
    for node in graph_def.node:
        for name in node.input:
            takers.setdefault(node_name(name.lstrip("^")), []).append(node.name)
    reached = {node.name for node in graph_def.node if APPLYING.fullmatch(node.op)}
    waiting = list(reached)
    while waiting:
        new = set(takers.get(waiting.pop(), ())) - reached
        reached |= new
        waiting += new
    sinks = (node.name for node in graph_def.node if node.name not in takers)
    return next((name for name in sinks if name in reached), None)
