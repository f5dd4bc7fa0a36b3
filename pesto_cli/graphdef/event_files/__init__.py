"""Read a training step from the graph in TensorBoard's event files, and make it runnable."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.event_files.events import event_files, graphs
from pesto_cli.graphdef.event_files.handles import handles, is_handle_type
from pesto_cli.graphdef.event_files.traced_graphs import returned_tensors, with_variables
from pesto_cli.graphdef.fetches import FED_TYPES, TRAIN_OP, Shape, fetch_names, node_name
from pesto_cli.graphdef.signature import OpDefs, node_type
from pesto_cli.graphdef.structure import (
    check_contents,
    check_structure,
    producers,
    unused_name,
)
from pesto_cli.printable import first_of, logger

SHOWN_FETCHES = 8
# A sink that depends on one of these saves or restores variables.
_CHECKPOINT_TYPES = frozenset({"SaveV2", "RestoreV2", "SaveSlices", "Save", "Restore"})
# Ops that bring values into a step: feeds, data sets, and reads of variables.
_DATA_TYPES = frozenset({*FED_TYPES, "ReadVariableOp", "ResourceGather", "IteratorGetNext"})
_VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
# Names that TensorFlow gives to the outputs of a traced function, and to the ops of gradients.
_OUTPUT = re.compile(r"Identity(_\d+)?")
_GRADIENT = re.compile(r"(.*/)?(gradients(_\d+)?|gradient_tape)/")

log = logger(__name__)


def event_graph(path: Path, feeds: Mapping[str, Shape]) -> Any:
    """Return the largest graph in an event file, or in the event files of a log directory.

    If the graph names no fetches, all sinks are fetched: the nodes without consumers, without those
    that initialise, save or restore variables. In a traced function, a sink counts only if it has a
    side effect or is an output, because TensorFlow does not run the others.

    A traced function has placeholders for the handles of variables. They become variables again,
    with random values; `feeds` gives their shapes, by name, if the graph leaves these open.

    Raises:
        BadInputError: there is no graph, it uses a resource that is not a variable, or the shape of
            a variable is open.
    """
    largest = _largest(path)
    check_contents(largest, str(path))
    check_structure(largest.graph_def, str(path))
    meta, outputs = returned_tensors(largest)
    if not fetch_names(meta):
        _fetch_every_sink(meta, outputs, str(path))
    return with_variables(meta, feeds, str(path))


def _largest(path: Path) -> Any:
    found = [meta for file in event_files(path) for meta in graphs(file)]
    found = [meta for meta in found if meta.graph_def.node]
    if not found:
        raise BadInputError(
            f"{path}: event files without a graph, or truncated before it; a graph written by"
            " tf.summary.graph, tf.summary.trace_export or tf.compat.v1.summary.FileWriter was"
            " expected. Write the graph of the training step there."
        )
    largest = max(found, key=lambda meta: (_num_nodes(meta), len(meta.collection_def)))
    if any(_num_nodes(meta) != _num_nodes(largest) for meta in found):
        log.warning(
            "%s: has %d graphs; the largest one is exported, with %d nodes.",
            path,
            len(found),
            _num_nodes(largest),
        )
    return largest


def _num_nodes(meta: Any) -> int:
    functions = meta.graph_def.library.function
    return len(meta.graph_def.node) + sum(len(function.node_def) for function in functions)


def _fetch_every_sink(meta: Any, outputs: Sequence[str], what: str) -> None:
    """Set the fetches, in place: a new op that runs all sinks, then the outputs or the losses."""
    sinks = _sinks(meta.graph_def, outputs)
    if not sinks:
        raise BadInputError(
            f"{what}: no op of the graph computes anything; a training step was expected."
        )
    train_op = unused_name(meta.graph_def, TRAIN_OP)
    run = dict.fromkeys([*sinks, *map(node_name, outputs)])
    meta.graph_def.node.add(name=train_op, op="NoOp", input=[f"^{name}" for name in run])
    losses = [f"{name}:0" for name in sinks if _is_loss(meta.graph_def, name)]
    meta.collection_def[TRAIN_OP].node_list.value[:] = [train_op, *(outputs or losses)]
    if len(sinks) > 1:
        log.warning(
            "%s: a step runs all %d nodes without consumers: %s. Choose others with --fetch.",
            what,
            len(sinks),
            first_of(sinks, SHOWN_FETCHES),
        )


def _sinks(graph_def: Any, outputs: Sequence[str]) -> list[str]:
    nodes = {node.name: node for node in graph_def.node}
    consumed = {source for node in graph_def.node for source in producers(node)}
    sinks = [
        name
        for name, node in nodes.items()
        if name not in consumed and node.input and _is_of_a_step(node, nodes)
    ]
    if not outputs and not handles(graph_def):
        return sinks
    op_defs, returned = OpDefs(graph_def.library), set(map(node_name, outputs))
    return [
        name
        for name in sinks
        if name in returned
        or _OUTPUT.fullmatch(name)
        or nodes[name].op == "NoOp"
        or op_defs.of(nodes[name]).is_stateful
    ]


def _is_of_a_step(sink: Any, nodes: Mapping[str, Any]) -> bool:
    """Whether a sink depends on data or variables, and is neither save, restore nor mere read."""
    if _is_read(sink, nodes):
        return False
    takes_data, seen, waiting = False, {sink.name}, [sink.name]
    while waiting:
        node = nodes[waiting.pop()]
        if node.op in _CHECKPOINT_TYPES:
            return False
        takes_data |= node.op in _DATA_TYPES or _is_read(node, nodes)
        new = [source for source in producers(node) if source not in seen]
        seen.update(new)
        waiting += new
    return takes_data


def _is_read(node: Any, nodes: Mapping[str, Any]) -> bool:
    """Return whether a node only reads a variable, or forwards its handle."""
    if node.op not in ("ReadVariableOp", "Identity"):
        return False
    source = nodes[node_name(node.input[0])]
    is_handle = source.op in FED_TYPES and is_handle_type(source.attr["dtype"].type)
    return source.op in _VARIABLES or is_handle


def _is_loss(graph_def: Any, name: str) -> bool:
    """Return whether a node outputs one floating-point number, according to its recorded shape.

    Nodes of gradients do not count: a gradient without consumers may be such a number, too.
    """
    if _GRADIENT.match(name):
        return False
    node = next(node for node in graph_def.node if node.name == name)
    if "_output_shapes" not in node.attr or "T" not in node.attr:
        return False
    shapes = node.attr["_output_shapes"].list.shape
    is_scalar = len(shapes) == 1 and not shapes[0].unknown_rank and not shapes[0].dim
    return is_scalar and bool(node_type(node, "T").is_floating)
