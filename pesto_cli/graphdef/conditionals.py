"""Which functional control flow stays one op, and which conditionals become Switches and Merges.

As one op, a conditional shares a device with every variable that one of its branches uses, and so
ties these variables together: `tf.cond` around an optimiser's update puts the whole model on one
device. As Switches and Merges, each op of a branch only follows what it uses itself.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any

from pesto_cli.graphdef.devices import DT_RESOURCE, DT_VARIANT
from pesto_cli.graphdef.structure import called_functions

CALLS = ("PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient")
CONDITIONALS = ("If", "StatelessIf", "Case", "StatelessCase")
FUNCTIONAL_CONTROL_FLOW = ("While", "StatelessWhile", *CONDITIONALS)
LOWERED = "_lower_using_switch_merge"
"""The attribute by which TensorFlow takes functional control flow apart when it inlines calls."""


def choose_lowering(graph_def: Any, named: Collection[str]) -> bool:
    """Mark which functional control flow is taken apart, in place; return whether any is.

    It is a conditional that takes or gives two handles or more, in the graph or in what it calls;
    everything within a While, or within a conditional that stays one op, is a part of that op. So
    is a conditional whose outputs are `named` (`cond:0`, by a fetch for one): they go with it.
    """
    forbid_lowering(graph_def)
    functions = {function.signature.name: function for function in graph_def.library.function}
    whole = {name.partition(":")[0] for name in named if ":" in name}
    chosen = [node for node in _inlined(graph_def, functions, whole) if _ties(node)]
    for node in chosen:
        node.attr[LOWERED].b = True
        for name in set(called_functions(node)) & functions.keys():
            _finish_with_outputs(functions[name])
    return bool(chosen)


def forbid_lowering(graph_def: Any) -> None:
    """Have functional control flow, in the graph and in its functions, stay one op each."""
    bodies = (function.node_def for function in graph_def.library.function)
    for node in chain(graph_def.node, *bodies):
        if node.op in FUNCTIONAL_CONTROL_FLOW:
            node.attr[LOWERED].b = False


def _finish_with_outputs(function: Any) -> None:
    """Have what waits for a function's end wait for its outputs too, in place.

    Functions of a v1 graph name no side effects of theirs; what they change hangs on their outputs.
    A conditional that is one op computes these whether they are taken or not.
    """
    if function.control_ret:
        return
    nodes = {node.name for node in function.node_def}
    for output, tensor in sorted(function.ret.items()):
        source = tensor.partition(":")[0]
        if source in nodes:
            function.control_ret[f"{output}_control"] = source
            function.signature.control_output.append(f"{output}_control")


def _inlined(graph_def: Any, functions: Mapping[str, Any], whole: Collection[str]) -> Iterator[Any]:
    """Yield the nodes of the graph, and those of each function that will be a part of it, once.

    Not the nodes of the graph that stay `whole`.
    """
    waiting, seen = [[node for node in graph_def.node if node.name not in whole]], set[str]()
    while waiting:
        for node in waiting.pop():
            yield node
            if node.op in CALLS or node.op in functions or _ties(node):
                called = set(called_functions(node)) & functions.keys() - seen
                waiting += [functions[name].node_def for name in sorted(called)]
                seen |= called


def _ties(node: Any) -> bool:
    """Whether a node is a conditional that shares a device with two handles or more."""
    if node.op not in CONDITIONALS:
        return False
    types = (*node.attr["Tin"].list.type, *node.attr["Tout"].list.type)
    return sum(dtype in (DT_RESOURCE, DT_VARIANT) for dtype in types) > 1
