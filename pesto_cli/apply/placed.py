"""A placed graph: a MetaGraphDef with the devices and control inputs of a placement."""

from collections.abc import Mapping
from typing import Any

from pesto_cli.apply.changes import Changes, Order, planned_changes
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.colocation import colocated
from pesto_cli.graphdef.nodes import needed_nodes
from pesto_cli.graphdef.signature import OpDefs

_COLOCATED_WITH = b"loc:@"


def apply(
    meta: Any,
    placement: PlacementFile,
    *,
    order: Order = "full",
    devices: Mapping[str, str] | None = None,
) -> Any:
    """Return a MetaGraphDef, placed and ordered: arguments and errors of `planned_changes`."""
    return with_changes(meta, planned_changes(meta, placement, order=order, devices=devices))


def with_changes(meta: Any, changes: Changes) -> Any:
    """Return a copy of a MetaGraphDef with these changes.

    What lies outside the step (initialisers, savers) loses its devices: TensorFlow's placer puts
    it with the variable that it works on, and a device of its own could move that variable. So
    does a node of the step its `_class` attribute, since it has a device now, and any node one
    that would join devices.
    """
    copy = type(meta)()
    copy.CopyFrom(meta)
    unplaced = _classes_to_drop(meta.graph_def, changes.device)
    for node in copy.graph_def.node:
        node.device = changes.device.get(node.name, "")
        present = set(node.input)
        waits_for = (f"^{source}" for source in changes.waits_for.get(node.name, ()))
        node.input.extend(source for source in waits_for if source not in present)
        if node.name in unplaced:
            del node.attr["_class"]
    for function in copy.graph_def.library.function:
        for node in function.node_def:
            node.device = ""
    return copy


def _classes_to_drop(graph_def: Any, device: Mapping[str, str]) -> set[str]:
    """Names of the nodes whose `_class` attribute the placed graph does without.

    Nodes that share a variable, and nodes that a `_class` joins, have one device between them.
    """
    nodes = needed_nodes(graph_def, (node.name for node in graph_def.node))
    index_of = {node.name: index for index, node in enumerate(nodes)}
    groups = colocated(nodes, OpDefs(graph_def.library))
    devices: dict[int, set[str]] = {}
    for index, node in enumerate(nodes):
        devices.setdefault(groups.find(index), set()).update(
            {device[node.name]} if node.name in device else ()
        )
    dropped = set()
    for index, node in enumerate(nodes):
        for entry in node.proto.attr["_class"].list.s if "_class" in node.proto.attr else ():
            target = index_of.get(entry.removeprefix(_COLOCATED_WITH).decode(), index)
            one, other = groups.find(index), groups.find(target)
            joined = devices[one] | devices[other]
            if node.name in device or len(joined) > 1:
                dropped.add(node.name)
            else:
                groups.union(one, other)
                devices[groups.find(one)] = joined
    return dropped
