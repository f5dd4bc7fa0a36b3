"""Choose the conditionals to lower to Switches and Merges; other control flow stays one op each.

A conditional that is one op must be on the device of every variable that its branches use, so all
these variables share one device: `tf.cond` around an optimiser's update puts the whole model on one
device. After lowering, each op of a branch shares a device only with the variables that it uses.
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
"""Attribute of functional control flow that TensorFlow lowers when it inlines calls."""


def choose_lowering(graph_def: Any, named: Collection[str]) -> bool:
    """Mark the functional control flow that is to be lowered, in place; return whether any is.

    Conditionals with two or more handles among their inputs and outputs are marked, in the graph
    and in the functions that it calls. Nothing inside a While, or inside a conditional that stays
    one op, is marked. Neither is a conditional with an output in `named` (a fetch `cond:0`, for
    example), because this tensor would not exist any more.
    """
    forbid_lowering(graph_def)
    functions = {function.signature.name: function for function in graph_def.library.function}
    whole = {name.partition(":")[0] for name in named if ":" in name}
    chosen = [node for node in _inlined(graph_def, functions, whole) if _shares_handles(node)]
    for node in chosen:
        node.attr[LOWERED].b = True
        for name in set(called_functions(node)) & functions.keys():
            _make_outputs_control_outputs(functions[name])
    return bool(chosen)


def forbid_lowering(graph_def: Any) -> None:
    """Mark all functional control flow, in the graph and its functions, to stay one op each."""
    bodies = (function.node_def for function in graph_def.library.function)
    for node in chain(graph_def.node, *bodies):
        if node.op in FUNCTIONAL_CONTROL_FLOW:
            node.attr[LOWERED].b = False


def _make_outputs_control_outputs(function: Any) -> None:
    """Add all outputs of a function to its control outputs, in place, if it has none.

    Functions of a v1 graph do not list their side effects: these happen because an output needs
    them. A conditional that is one op computes its outputs even if nothing consumes them. Once it
    is lowered, an op that waits for the end of the conditional waits only for its control outputs.
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
    """Yield the nodes of the graph and those of each function that will be inlined, once each.

    Nodes of the graph in `whole`, and the functions that only these call, are left out.
    """
    waiting, seen = [[node for node in graph_def.node if node.name not in whole]], set[str]()
    while waiting:
        for node in waiting.pop():
            yield node
            if node.op in CALLS or node.op in functions or _shares_handles(node):
                called = set(called_functions(node)) & functions.keys() - seen
                waiting += [functions[name].node_def for name in sorted(called)]
                seen |= called


def _shares_handles(node: Any) -> bool:
    """Return whether a node is a conditional with two or more handles as inputs or outputs."""
    if node.op not in CONDITIONALS:
        return False
    types = (*node.attr["Tin"].list.type, *node.attr["Tout"].list.type)
    return sum(dtype in (DT_RESOURCE, DT_VARIANT) for dtype in types) > 1
