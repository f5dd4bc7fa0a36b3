"""Give calls the values of variables, in place of the handles, if their functions only read them.

A call that takes the handle of a variable runs on the device of the variable. Keras' grouped
convolutions are such calls: XLA compiles each as a function that reads its filter. A call that
takes the value can run on any device, and can be split:

    variable ──> call of f             variable ──> ReadVariableOp ──> call of f_of_values

The new read waits for all that the call waits for. The call waits for the read, so whatever waits
for the call, such as the update of the variable, still comes after the read.
"""

from collections.abc import Mapping
from typing import Any

from pesto_cli.graphdef.devices import DT_RESOURCE
from pesto_cli.graphdef.signature import OpDefs

READ = "ReadVariableOp"
CALLS = {"PartitionedCall": "PartitionedCall", "StatefulPartitionedCall": "PartitionedCall"}
"""Types of calls -> the type of the same call of a function without state."""
OF_HANDLES = "_read_only_resource_inputs"
_OF_GRADIENTS = ("backward_function_name", "forward_function_name")

Reads = Mapping[str, str]
"""The nodes of a function that read a variable: name -> name of the argument with the handle."""


def take_values(graph_def: Any) -> None:
    """Let each call of a function without other state take the values of variables, in place.

    Calls stay as they are if their function has state other than variables that it reads, uses a
    handle in another way, or returns one.
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    op_defs = OpDefs(graph_def.library)
    taken = {node.name for node in graph_def.node}
    reads_of: dict[str, Reads] = {}
    added: list[Any] = []
    for node in graph_def.node:
        name = node.attr["f"].func.name if node.op in CALLS else ""
        if name not in functions:
            continue
        if name not in reads_of:
            reads_of[name] = _reads(functions[name], op_defs)
            if reads_of[name]:
                copy = _of_values(functions[name], reads_of[name])
                functions[copy.signature.name] = copy
                graph_def.library.function.append(copy)
        found = _added_reads(node, functions[name], reads_of[name])
        if found and taken.isdisjoint(each.name for each in found.values()):
            _replace_handles(node, found)
            added += found.values()
            taken.update(each.name for each in found.values())
    graph_def.node.extend(added)


def _reads(function: Any, op_defs: OpDefs) -> Reads:
    """Return the reads of a function; empty if it has other state, or other uses of handles."""
    handles = {each.name for each in function.signature.input_arg if each.type == DT_RESOURCE}
    reads = {
        node.name: node.input[0]
        for node in function.node_def
        if node.op == READ and node.input[0] in handles
    }
    others = [node for node in function.node_def if node.name not in reads]
    used = {*function.ret.values(), *(source for node in others for source in node.input)}
    has_state = any(op_defs.of(node).is_stateful for node in others)
    return {} if has_state or used & handles or set(reads.values()) != handles else reads


def _of_values(function: Any, reads: Reads) -> Any:
    """Return a copy of a function that takes values in place of handles."""
    copy = type(function)()
    copy.CopyFrom(function)
    copy.signature.name = name_of_values(function.signature.name)
    copy.signature.is_stateful = False
    dtypes = {
        node.input[0]: node.attr["dtype"].type for node in copy.node_def if node.name in reads
    }
    for place, argument in enumerate(copy.signature.input_arg):
        if argument.name in dtypes:
            argument.type = dtypes[argument.name]
            argument.ClearField("handle_data")
            copy.arg_attr.pop(place, None)
    values = {f"{name}:value:0": argument for name, argument in reads.items()}
    waits = {f"^{name}" for name in reads}
    kept = [node for node in copy.node_def if node.name not in reads]
    for node in kept:
        node.input[:] = [values.get(text, text) for text in node.input if text not in waits]
    copy.ClearField("node_def")
    copy.node_def.extend(kept)
    for output, text in list(copy.ret.items()):  # A map that changes must not be walked through.
        copy.ret[output] = values.get(text, text)
    for output in [each for each, source in copy.control_ret.items() if source in reads]:
        del copy.control_ret[output]
        copy.signature.control_output.remove(output)
    copy.resource_arg_unique_id.clear()
    for name in _OF_GRADIENTS:
        copy.attr.pop(name, None)
    return copy


def name_of_values(function: str) -> str:
    """Return the name of the function that takes values in place of handles."""
    return f"{function}_of_values"


def _added_reads(node: Any, function: Any, reads: Reads) -> dict[int, Any]:
    """Return the NodeDef that reads each variable of a call: place of its handle -> node."""
    of_argument = {argument: name for name, argument in reads.items()}
    dtypes = {each.name: each.attr["dtype"] for each in function.node_def if each.name in reads}
    controls = [text for text in node.input if text.startswith("^")]
    found = {}
    for place, argument in enumerate(function.signature.input_arg):
        if argument.name in of_argument:
            read = of_argument[argument.name]
            new = type(node)(name=f"{node.name}/{read}", op=READ, device=node.device)
            new.input.extend([node.input[place], *controls])
            new.attr["dtype"].CopyFrom(dtypes[read])
            found[place] = new
    return found


def _replace_handles(node: Any, reads: Mapping[int, Any]) -> None:
    """Let a call take the results of reads, by place of the handles that these replace."""
    node.op = CALLS[node.op]
    node.attr["f"].func.name = name_of_values(node.attr["f"].func.name)
    node.attr.pop(OF_HANDLES, None)
    for place, read in reads.items():
        node.input[place] = read.name
        node.attr["Tin"].list.type[place] = read.attr["dtype"].type
