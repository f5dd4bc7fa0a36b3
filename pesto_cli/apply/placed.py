"""A placed graph: a MetaGraphDef with the devices and control inputs of a placement."""

from collections.abc import Mapping
from typing import Any

from pesto_cli.apply.edits import Changes, Order, planned_changes
from pesto_cli.files import PlacementFile


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
    for node in copy.graph_def.node:
        node.device = changes.device.get(node.name, "")
        present = set(node.input)
        waits_for = (f"^{source}" for source in changes.waits_for.get(node.name, ()))
        node.input.extend(source for source in waits_for if source not in present)
        if node.name in changes.without_class:
            del node.attr["_class"]
    for function in copy.graph_def.library.function:
        for node in function.node_def:
            node.device = ""
    return copy
