"""Apply a placement to a tf.Graph in place, before any session has run it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pesto_cli.apply.class_attributes import classes_to_drop
from pesto_cli.apply.devices import tensorflow_devices
from pesto_cli.apply.edits import Changes, Order, changes_of_step
from pesto_cli.apply.live.copies import ADDED, add_no_ops
from pesto_cli.apply.placed import with_changes
from pesto_cli.apply.same_step import Difference, find_step
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.conditionals import FUNCTIONAL_CONTROL_FLOW, LOWERED
from pesto_cli.graphdef.fetches import fetch_names, node_name
from pesto_cli.graphdef.guards import guard_reads
from pesto_cli.graphdef.nodes import needed_nodes
from pesto_cli.graphdef.outside_step import devices_of_other_handles
from pesto_cli.graphdef.programs.session_runs import Waits
from pesto_cli.graphdef.programs.training_step import CHANGING
from pesto_cli.graphdef.read import StepGraph


@dataclass(frozen=True)
class PlacedGraph:
    """The result of placing a graph.

    meta: the graph before it was placed, with its step simplified as in the placement.
    changes: the changes to the graph, by node name; only devices if the placement splits ops.
    updates: names of the ops of the step that change variables, or of all its ops if none does. A
        run that executes all of them is a step.
    left_out: names of the ops that the simplified step does not need.
    """

    meta: Any
    changes: Changes
    updates: frozenset[str]
    left_out: frozenset[str]

    @property
    def added(self) -> Waits:
        """The control inputs that were added."""
        return self.changes.control_inputs

    def as_built(self, graph_def: Any) -> Any:
        """Remove devices, control inputs and operations of pesto from the graph, in place.

        A program may export its graph, for another program that does not have these devices, and
        whose runs would execute other ops because of the order.
        """
        kept = [node for node in graph_def.node if ADDED not in node.attr]
        for node in kept:
            built = self._built.get(node.name)
            if built is not None:
                node.device = built.device
                added = {f"^{source}" for source in self.added.get(node.name, ())}
                node.input[:] = [
                    text for text in node.input if text not in added or text in built.input
                ]
                if "_class" in built.attr:
                    node.attr["_class"].CopyFrom(built.attr["_class"])
        del graph_def.node[:]
        graph_def.node.extend(kept)
        return graph_def

    @cached_property
    def _built(self) -> Mapping[str, Any]:
        return {node.name: node for node in self.meta.graph_def.node}


def place_graph(
    graph: Any,
    placement: PlacementFile,
    *,
    order: Order,
    devices: Mapping[str, str] | None,
    num_seen: int,
    what: str,
) -> PlacedGraph | Difference:
    """Set the devices and control inputs of a tf.Graph, or return how it differs from the plan.

    If the placement splits ops, only the devices of the whole ops are set, and the rest of the
    graph stays as built: `add_split_step` adds the parts later.

    num_seen: the number of its operations that a session has seen; they cannot be changed.
    what: names the program in errors.

    Raises BadInputError if the graph or the devices do not fit, as `planned_changes` does.
    """
    found = find_step(graph, placement, what)
    if isinstance(found, Difference):
        return found
    in_step = {node for nodes in found.step.nodes for node in nodes} | found.step.constants.keys()
    seen = [operation.name for operation in graph.get_operations()[:num_seen]]
    too_late = [name for name in seen if name in in_step]
    if too_late:
        return Difference(seen=too_late)
    if placement.plan:
        changes = _devices_of_whole_ops(found.step, placement, devices)
    else:
        changes = changes_of_step(found.meta, found.step, placement, order=order, devices=devices)
        _rewire(graph, found.built, found.meta)
    _change(graph, found.meta, with_changes(found.meta, changes), changes)
    guard_reads(graph, in_step.union(seen))
    types = {node.name: node.op for node in found.meta.graph_def.node if node.name in in_step}
    updates = frozenset(name for name, kind in types.items() if CHANGING.fullmatch(kind))
    left_out = frozenset(_needed(found.built) - _needed(found.meta))
    return PlacedGraph(found.meta, changes, updates or frozenset(types), left_out)


def _devices_of_whole_ops(
    step: StepGraph, placement: PlacementFile, devices: Mapping[str, str] | None
) -> Changes:
    """Return the devices of the whole ops if a placement splits ops: of their first part."""
    names = tensorflow_devices(placement.devices, set(placement.device), devices or {})
    of_op: dict[str | None, str] = {}
    for row, device in enumerate(placement.device):
        of_op.setdefault(placement.origin_of(row), names[device])
    ops = [*zip(step.graph.names, step.nodes, strict=True)]
    placed = {node: of_op[op] for op, nodes in ops if op in of_op for node in nodes}
    placed |= devices_of_other_handles(step.wiring, placed)
    return Changes(placed, {}, classes_to_drop(step.wiring, placed))


def _needed(meta: Any) -> set[str]:
    return {node.name for node in needed_nodes(meta.graph_def, map(node_name, fetch_names(meta)))}


def _rewire(graph: Any, built: Any, simplified: Any) -> None:
    """Set the inputs of the ops of a tf.Graph as in its simplified MetaGraphDef."""
    for old, new in zip(built.graph_def.node, simplified.graph_def.node, strict=True):
        if list(old.input) != list(new.input):
            operation = graph.get_operation_by_name(new.name)
            data = [text for text in new.input if not text.startswith("^")]
            for place, text in enumerate(data):
                name, _, number = text.partition(":")
                tensor = graph.get_tensor_by_name(f"{name}:{number or 0}")
                if tensor is not operation.inputs[place]:
                    operation._update_input(place, tensor)
            operation._remove_all_control_inputs()
            operation._add_control_inputs(
                [graph.get_operation_by_name(text[1:]) for text in new.input[len(data) :]]
            )


def _change(graph: Any, before: Any, after: Any, changes: Changes) -> None:
    """Change a tf.Graph, whose MetaGraphDef is `before`, to match `after`."""
    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    nodes = [node for node in after.graph_def.node if node.name not in changes.no_ops]
    for old, new in zip(before.graph_def.node, nodes, strict=True):
        operation = graph.get_operation_by_name(new.name)
        operation._set_device(new.device)
        if "_class" in old.attr and "_class" not in new.attr:
            operation._clear_attr("_class")
        if new.op in FUNCTIONAL_CONTROL_FLOW:
            operation._set_attr(LOWERED, AttrValue(b=False))
    add_no_ops(graph, changes.no_ops)
    for name, sources in changes.control_inputs.items():
        operation = graph.get_operation_by_name(name)
        operation._add_control_inputs([graph.get_operation_by_name(s) for s in sources])
