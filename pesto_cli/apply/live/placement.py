"""A placement written into a tf.Graph itself, before any session has seen it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pesto_cli.apply.edits import Changes, Order, changes_of_step
from pesto_cli.apply.live.same_step import Difference, find_step
from pesto_cli.apply.placed import with_changes
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.conditionals import FUNCTIONAL_CONTROL_FLOW, LOWERED
from pesto_cli.graphdef.fetches import fetch_names, node_name
from pesto_cli.graphdef.guards import guard_reads
from pesto_cli.graphdef.nodes import needed_nodes
from pesto_cli.graphdef.programs.session_runs import Waits
from pesto_cli.graphdef.programs.training_step import CHANGING


@dataclass(frozen=True)
class PlacedGraph:
    """What was done to a graph.

    meta: the graph before, its step simplified as the placement's. changes: by name, of the graph
    and of `meta`. updates: names of what changes variables in the step, or of all of it if nothing
    does: a run of these is a step. left_out: names of what the simplified step does without.
    """

    meta: Any
    changes: Changes
    updates: frozenset[str]
    left_out: frozenset[str]

    @property
    def added(self) -> Waits:
        """The order's control inputs."""
        return self.changes.waits_for


def place_graph(
    graph: Any,
    placement: PlacementFile,
    *,
    order: Order,
    devices: Mapping[str, str] | None,
    num_seen: int,
    what: str,
) -> PlacedGraph | Difference:
    """Set devices and control inputs of a tf.Graph, or return why it is not the placement's.

    num_seen: how many of its operations a session has seen, in which changes have no effect.
    what: names the program in errors.

    Raises BadInputError where the graph or the devices do not fit, as `planned_changes` does.
    """
    found = find_step(graph, placement, what)
    if isinstance(found, Difference):
        return found
    in_step = {node for nodes in found.step.nodes for node in nodes} | found.step.constants.keys()
    seen = [operation.name for operation in graph.get_operations()[:num_seen]]
    too_late = [name for name in seen if name in in_step]
    if too_late:
        return Difference(seen=too_late)
    changes = changes_of_step(found.meta, found.step, placement, order=order, devices=devices)
    _rewire(graph, found.built, found.meta)
    _change(graph, found.meta, with_changes(found.meta, changes), changes)
    guard_reads(graph, in_step.union(seen))
    types = {node.name: node.op for node in found.meta.graph_def.node if node.name in in_step}
    updates = frozenset(name for name, kind in types.items() if CHANGING.fullmatch(kind))
    left_out = frozenset(_needed(found.built) - _needed(found.meta))
    return PlacedGraph(found.meta, changes, updates or frozenset(types), left_out)


def _needed(meta: Any) -> set[str]:
    return {node.name for node in needed_nodes(meta.graph_def, map(node_name, fetch_names(meta)))}


def _rewire(graph: Any, built: Any, simplified: Any) -> None:
    """Give the ops of a tf.Graph the inputs that they have in its simplified MetaGraphDef."""
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
    """Make a tf.Graph, whose MetaGraphDef is `before`, what `after` says."""
    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    for old, new in zip(before.graph_def.node, after.graph_def.node, strict=True):
        operation = graph.get_operation_by_name(new.name)
        operation._set_device(new.device)
        if "_class" in old.attr and "_class" not in new.attr:
            operation._clear_attr("_class")
        if new.op in FUNCTIONAL_CONTROL_FLOW:
            operation._set_attr(LOWERED, AttrValue(b=False))
    for name, sources in changes.waits_for.items():
        operation = graph.get_operation_by_name(name)
        operation._add_control_inputs([graph.get_operation_by_name(s) for s in sources])
