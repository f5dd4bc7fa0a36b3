"""The iterators of a step's data sets: how each begins."""

from collections.abc import Sequence
from typing import Any

from pesto_cli.graphdef.completion import MAIN_OP
from pesto_cli.graphdef.fetches import FED_TYPES, INIT_OP, node_name
from pesto_cli.graphdef.structure import ancestors
from pesto_cli.printable import logger

TABLE_INITIALIZER = "table_initializer"
"""Collection of what else than variables `completion` initialises."""
ITERATORS = ("Iterator", "IteratorV2")

log = logger(__name__)


def begin_iterators(meta: Any, step: Sequence[Any], what: str) -> None:
    """Have a graph's initialisation begin the iterators among the NodeDefs of a step, in place.

    One that several data sets may begin begins with the first. A warning tells of an iterator that
    nothing in the graph begins without being fed.
    """
    iterators = [node.name for node in step if node.op in ITERATORS]
    if not iterators:
        return
    nodes = {node.name: node for node in meta.graph_def.node}
    starts: dict[str, list[str]] = {name: [] for name in iterators}
    for node in meta.graph_def.node:
        if node.op == "MakeIterator" and node_name(node.input[1]) in starts:
            starts[node_name(node.input[1])].append(node.name)
    begun = ancestors(meta.graph_def, _initialising(meta))
    for name, makers in starts.items():
        if begun.isdisjoint(makers):
            unfed = [maker for maker in makers if not _is_fed(meta.graph_def, nodes, maker)]
            if unfed and INIT_OP not in meta.collection_def:
                meta.collection_def[TABLE_INITIALIZER].node_list.value.append(unfed[0])
            else:
                log.warning(
                    "%s: nothing in the graph initialises iterator %r without being fed: the graph"
                    " can be profiled by the analytic model and placed, but runs only within the"
                    " program, which initialises it.",
                    what,
                    name,
                )


def _initialising(meta: Any) -> list[str]:
    """Return the nodes that initialise the graph, beside those of its variables."""
    names = [
        node_name(name)
        for key in (INIT_OP, TABLE_INITIALIZER, MAIN_OP, "legacy_init_op")
        if key in meta.collection_def
        for name in meta.collection_def[key].node_list.value
    ]
    present = {node.name for node in meta.graph_def.node}
    return [name for name in names if name in present]


def _is_fed(graph_def: Any, nodes: dict[str, Any], name: str) -> bool:
    return any(nodes[source].op in FED_TYPES for source in ancestors(graph_def, [name]))
