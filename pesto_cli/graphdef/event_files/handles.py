"""Find the placeholders of the handles (variables, iterators) that a traced function captured."""

from collections.abc import Mapping
from typing import Any

from pesto_cli.graphdef.fetches import FED_TYPES
from pesto_cli.graphdef.tensorflow import tensorflow


def is_handle_type(dtype: int) -> bool:
    """Return whether a `DataType` number is that of a resource or variant."""
    tf = tensorflow()
    return dtype in (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)


def handles(graph_def: Any) -> Mapping[str, str]:
    """Return for each node that outputs a captured handle the placeholder of this handle.

    The nodes are the placeholders themselves, and the Identities that forward a handle: inlining a
    function adds these.
    """
    nodes = {node.name: node for node in graph_def.node}
    found = {
        name: name
        for name, node in nodes.items()
        if node.op in FED_TYPES and is_handle_type(node.attr["dtype"].type)
    }
    for name, node in nodes.items():
        passed = []
        while node.op == "Identity" and node.name not in found and node.input[0] in nodes:
            passed.append(node.name)
            node = nodes[node.input[0]]
        if node.name in found:
            found |= dict.fromkeys([name, *passed], found[node.name])
    return found
