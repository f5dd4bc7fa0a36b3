"""Add the initialisation of a step's data set iterators to that of the graph."""

from collections.abc import Sequence
from typing import Any

from pesto_cli.graphdef.completion import MAIN_OP
from pesto_cli.graphdef.fetches import FED_TYPES, INIT_OP, node_name
from pesto_cli.graphdef.structure import ancestors
from pesto_cli.printable import logger

TABLE_INITIALIZER = "table_initializer"
"""Collection of the ops other than variable initialisers that `completion` puts in the init op."""
ITERATORS = ("Iterator", "IteratorV2")

log = logger(__name__)


def add_iterator_initialisers(meta: Any, step: Sequence[Any], what: str) -> None:
    """Add the initialisers of the iterators of a step to those of its graph, in place.

    step: the NodeDefs of the step. If several data sets can initialise an iterator, the first one
    is used. Logs a warning for an iterator that no op of the graph initialises without a feed.
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
                    "%s: no op of the graph initialises the iterator %r without a feed. The graph"
                    " can be profiled by the analytic model and placed, but it runs only within the"
                    " program, which initialises the iterator.",
                    what,
                    name,
                )


def _initialising(meta: Any) -> list[str]:
    """Return the names of the nodes that initialise the graph, without variable initialisers."""
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
