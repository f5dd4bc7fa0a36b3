"""Read the function that a call runs as a step: its ops have specs like those of a graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.data.specs import Operand
from pesto_cli.graphdef.attributes import attr_value
from pesto_cli.graphdef.fetches import TRAIN_OP
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.signature import OpDefs
from pesto_cli.graphdef.spec_nodes import constant_def
from pesto_cli.graphdef.tensorflow import tensorflow

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
MAX_OPS = 64
"""The bodies of functions with more ops are not read: it would take long to find their splits."""


@dataclass(frozen=True)
class BodyStep:
    """The ops of a function for given arguments.

    arguments: names of their nodes. returns: (name of a node, number of its output) for each result
        of the function.
    """

    step: StepGraph
    arguments: Sequence[str]
    returns: Sequence[tuple[str, int]]


def body_step(node: Any, arguments: Sequence[Operand], op_defs: OpDefs) -> BodyStep | None:
    """Return the body of the function that a call runs.

    node: the NodeDef of the call. arguments: what it takes. op_defs: those of its graph.

    None if the function is not in the graph, has an open data type, takes a handle or an open
    shape, has too many ops, or has an op with a state, or with functions other than those of calls.
    """
    function = op_defs.functions.get(node.attr["f"].func.name)
    if function is None or function.signature.attr or len(function.node_def) > MAX_OPS:
        return None
    if not all(each.is_static and not each.is_handle and each.dtype for each in arguments):
        return None
    if not all(_is_pure(each, op_defs) for each in function.node_def):
        return None
    names = [each.name for each in function.signature.input_arg]
    first = _first_outputs(function, op_defs)
    results = [function.ret[each.name] for each in function.signature.output_arg]
    returns = [_place(text, first) for text in results]
    tf = tensorflow()
    meta = tf.compat.v1.MetaGraphDef()
    meta.graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION
    meta.graph_def.library.function.extend(_within(function, op_defs).values())
    meta.graph_def.node.extend(map(_argument, names, arguments))
    for each in function.node_def:
        inputs = [_flat(text, first) for text in each.input]
        meta.graph_def.node.add().CopyFrom(each)
        meta.graph_def.node[-1].input[:] = inputs
    fetches = dict.fromkeys(f"{name}:{number}" for name, number in returns)
    meta.collection_def[TRAIN_OP].node_list.value.extend(fetches)
    step = read_step(meta, f"function {function.signature.name!r}", open_shapes=True)
    return BodyStep(step, names, returns)


def _is_pure(node: Any, op_defs: OpDefs) -> bool:
    """Return whether an op of a function has no state, and calls only functions without state."""
    op_def = op_defs.of(node)
    if node.op in CALLS:
        function = op_defs.functions.get(node.attr["f"].func.name)
        return function is not None and all(_is_pure(each, op_defs) for each in function.node_def)
    return not op_def.is_stateful and not any("func" in attr.type for attr in op_def.attr)


def _within(function: Any, op_defs: OpDefs) -> dict[str, Any]:
    """Return the functions that a function calls, directly or through others, by name."""
    found: dict[str, Any] = {}
    for node in function.node_def:
        if node.op in CALLS:
            name = node.attr["f"].func.name
            found[name] = op_defs.functions[name]
            found |= _within(op_defs.functions[name], op_defs)
    return found


def _argument(name: str, operand: Operand) -> Any:
    if operand.value is not None:
        return constant_def(name, operand)
    node = tensorflow().compat.v1.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].CopyFrom(attr_value("type", operand.dtype or ""))
    node.attr["shape"].CopyFrom(attr_value("shape", operand.sizes))
    return node


def _first_outputs(function: Any, op_defs: OpDefs) -> dict[tuple[str, str], int]:
    """Return the number of the first tensor of each output: (name of a node, output) -> number."""
    first: dict[tuple[str, str], int] = {}
    for node in function.node_def:
        for number, argument in enumerate(op_defs.signature(node).outputs):
            first.setdefault((node.name, argument.name), number)
    return first


def _place(text: str, first: Mapping[tuple[str, str], int]) -> tuple[str, int]:
    """Return a tensor of a function, `node:output:number` or an argument, as (node, number)."""
    node, _, rest = text.partition(":")
    output, _, number = rest.partition(":")
    return node, first[node, output] + int(number or 0) if output else 0


def _flat(text: str, first: Mapping[tuple[str, str], int]) -> str:
    """Return an input of a node in a function as an input of a node in a graph."""
    if text.startswith("^"):
        return text
    node, number = _place(text, first)
    return f"{node}:{number}"
