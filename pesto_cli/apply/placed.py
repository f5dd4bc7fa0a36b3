"""Write the devices and control inputs of a placement into a MetaGraphDef."""

from collections.abc import Mapping
from typing import Any

from pesto_cli.apply.edits import PLACED, Changes, Order, planned_changes
from pesto_cli.files import PlacementFile


def apply(
    meta: Any,
    placement: PlacementFile,
    *,
    order: Order = "full",
    devices: Mapping[str, str] | None = None,
) -> Any:
    """Return a copy of a MetaGraphDef with a placement applied.

    Arguments and errors are those of `planned_changes`.
    """
    return with_changes(meta, planned_changes(meta, placement, order=order, devices=devices))


def with_changes(meta: Any, changes: Changes) -> Any:
    """Return a copy of a MetaGraphDef with these changes, and with the ops of a plan split.

    The device of a node outside the step (initialiser, saver) is removed: TensorFlow's placer puts
    the node on the device of its variable, and a device of its own could move the variable. The
    `_class` attributes of `changes.without_class` are removed, too (see `classes_to_drop`). The
    copy has the collection `PLACED`.
    """
    copy = type(meta)()
    copy.CopyFrom(changes.changed_graph(meta))
    copy.collection_def[PLACED].int64_list.value[:] = [changes.num_control_edges]
    for name in changes.no_ops:
        copy.graph_def.node.add(name=name, op="NoOp")
    devices = {**changes.device, **changes.no_ops}
    for node in copy.graph_def.node:
        node.device = devices.get(node.name, "")
        present = set(node.input)
        waits_for = (f"^{source}" for source in changes.control_inputs.get(node.name, ()))
        node.input.extend(source for source in waits_for if source not in present)
        if node.name in changes.without_class:
            del node.attr["_class"]
    for function in copy.graph_def.library.function:
        for node in function.node_def:
            node.device = ""
    return copy
