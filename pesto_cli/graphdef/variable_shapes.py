"""The shapes of the variables behind handles, also of handles that other ops pass on."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pesto_cli.graphdef.branches import SWITCH
from pesto_cli.graphdef.nodes import MERGE, Node
from pesto_cli.graphdef.tensor_arrays import KnownSize

Sizes = tuple[int, ...]
# All outputs of the first ops are input 0. Output i of the other ops is input i, if that is a
# handle.
_ONE = frozenset({"Identity", "Enter", "Exit"}) | SWITCH | MERGE
_EACH = frozenset({"IdentityN", "While", "StatelessWhile"})


def shape_of_variable(node: Any) -> Sizes | None:
    """Return the shape of the variable that a node is the handle of; None for other nodes."""
    if node.op != "VarHandleOp" or node.attr["shape"].shape.unknown_rank:
        return None
    sizes = tuple(dimension.size for dimension in node.attr["shape"].shape.dim)
    return None if min(sizes, default=0) < 0 else sizes


def variable_shapes(nodes: Sequence[Node], order: Sequence[int]) -> Mapping[tuple[int, int], Sizes]:
    """Return the shape of the variable behind each handle.

    The keys are the index of the node and the number of the output that is the handle. order: a
    topological order of the nodes.
    """
    found: dict[tuple[int, int], Sizes] = {}
    for index in order:
        node = nodes[index]
        own = shape_of_variable(node.proto)
        if own is not None:
            found[index, 0] = own
        elif node.type in _ONE and node.inputs[0] in found:
            found |= dict.fromkeys(((index, 0), (index, 1)), found[node.inputs[0]])
        elif node.type in _EACH:
            places = enumerate(node.inputs)
            found |= {(index, place): found[source] for place, source in places if source in found}
    return found


def size_of_access(op_type: str, variable: Sizes) -> KnownSize | None:
    """Return the size of what an op outputs that takes a handle; None if it is another op."""
    if op_type == "VariableShape":
        return (len(variable),), len(variable)
    return (variable, math.prod(variable)) if op_type == "ReadVariableOp" else None
