"""A placed graph: a MetaGraphDef with the devices and control inputs of a placement."""

from collections.abc import Mapping
from typing import Any

from pesto_cli.apply.changes import Changes, Order, planned_changes
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.colocation import UnionFind, colocation_groups
from pesto_cli.graphdef.frames import outermost_frames
from pesto_cli.graphdef.nodes import Node, needed_nodes, topological_order
from pesto_cli.graphdef.signature import OpDefs


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
    dropped = _classes_to_drop(meta.graph_def, changes.device)
    for node in copy.graph_def.node:
        node.device = changes.device.get(node.name, "")
        present = set(node.input)
        waits_for = (f"^{source}" for source in changes.waits_for.get(node.name, ()))
        node.input.extend(source for source in waits_for if source not in present)
        if node.name in dropped:
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
    frames = outermost_frames(nodes, topological_order(nodes))
    groups = colocation_groups(nodes, frames, OpDefs(graph_def.library))
    devices: dict[int, set[str]] = {group: set() for group in groups}
    for node, group in zip(nodes, groups, strict=True):
        devices[group].update({device[node.name]} if node.name in device else ())
    sets, dropped = UnionFind(len(nodes)), set()
    for node, group in zip(nodes, groups, strict=True):
        for target in _colocated_with(node, index_of):
            one, other = sets.find(group), sets.find(groups[target])
            together = devices[one] | devices[other]
            if node.name in device or len(together) > 1:
                dropped.add(node.name)
            else:
                sets.union(one, other)
                devices[sets.find(one)] = together
    return dropped


def _colocated_with(node: Node, index_of: Mapping[str, int]) -> list[int]:
    """Indices of the nodes that a `_class` attribute names, or of none there are the node's own."""
    if "_class" not in node.proto.attr:
        return []
    names = (entry.removeprefix(b"loc:@").decode() for entry in node.proto.attr["_class"].list.s)
    return [index_of.get(name, index_of[node.name]) for name in names]
