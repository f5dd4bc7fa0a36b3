"""Whether a step trains: whether what is fetched updates a variable."""

import re
from typing import Any

from pesto_cli.graphdef.fetches import fetch_names, needed_protos, node_name

# Types of ops that write a variable; those of optimisers apply gradients.
APPLYING = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*")
UPDATING = re.compile(
    rf"{APPLYING.pattern}|Assign\w*|\w*StridedSliceAssign|(Resource)?Scatter(?!Nd$)\w+"
)


def untrained(meta: Any) -> str | None:
    """Return a remark on a step that updates no variable, with what looks like the train op.

    None where something is updated, also in a function of the graph, whoever calls it.
    """
    graph_def = meta.graph_def
    inner = (node for function in graph_def.library.function for node in function.node_def)
    outer = needed_protos(graph_def, fetch_names(meta))
    if any(UPDATING.fullmatch(node.op) for node in (*inner, *outer)):
        return None
    found = _train_op(graph_def)
    remedy = f"--fetch {found}" if found else "--fetch NAME, or of a SavedModel another --signature"
    return (
        "nothing is trained by these fetches: no variable is updated. For a training step, give "
        f"its train op: {remedy}"
    )


def _train_op(graph_def: Any) -> str | None:
    """Return an op that nothing takes and that an optimiser's ops lead to."""
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
