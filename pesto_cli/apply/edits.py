"""Compute the changes that a placement makes to a graph: devices of nodes, and control inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from pesto_cli.apply.class_attributes import classes_to_drop
from pesto_cli.apply.control_inputs import control_inputs, is_handle, ordered_ops
from pesto_cli.apply.devices import device_type, tensorflow_devices
from pesto_cli.apply.onednn import separated
from pesto_cli.apply.sends import SentFirst, sent_first
from pesto_cli.apply.split_variables import Pieces
from pesto_cli.apply.splitting import split_step
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.schedule import Placement
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.outside_step import devices_of_other_handles
from pesto_cli.graphdef.read import StepGraph, read_step

PLACED = "placed_by_pesto"
"""Collection that only a placed graph has: the number of control dependencies that were added."""

Order = Literal["full", "none"]


@dataclass(frozen=True)
class Changes:
    """The changes to one graph, by node name.

    device: node name -> TensorFlow device, for every node of the step, and for other handles of its
        variables.
    waits_for: node name -> names of the nodes that become its control inputs.
    without_class: names of the nodes whose `_class` attribute is removed.
    sent_first: the ops whose outputs are sent before other ops of their device run.
    step: the step of the changed graph; None if only devices are known.
    split: the graph with split ops, if the placement has a plan; None if no op is split.
    variables: those that are split or mirrored in it.
    """

    device: Mapping[str, str]
    waits_for: Mapping[str, Sequence[str]]
    without_class: frozenset[str] = frozenset()
    sent_first: tuple[SentFirst, ...] = ()
    step: StepGraph | None = field(default=None, compare=False, repr=False)
    split: Any = field(default=None, compare=False, repr=False)
    variables: tuple[Pieces, ...] = ()

    @property
    def num_control_edges(self) -> int:
        """The number of control edges that enforce the order."""
        return sum(len(sources) for sources in self.waits_for.values())

    @cached_property
    def control_inputs(self) -> Mapping[str, Sequence[str]]:
        """All control inputs to add, also of and for the NoOps of `sent_first`."""
        found = {node: [*sources] for node, sources in self.waits_for.items()}
        for each in self.sent_first:
            for node, source in each.control_inputs():
                found.setdefault(node, []).append(source)
        return found

    @cached_property
    def no_ops(self) -> Mapping[str, str]:
        """The device of each new NoOp, by its name."""
        return {name: self.device[each.op] for each in self.sent_first for name in each.no_ops}

    def changed_graph(self, meta: Any) -> Any:
        """Return the graph to change: the split graph if ops are split, or else `meta`."""
        return meta if self.split is None else self.split


def planned_changes(
    meta: Any,
    placement: PlacementFile,
    *,
    order: Order = "full",
    devices: Mapping[str, str] | None = None,
    what: str = "the graph",
) -> Changes:
    """Return the changes that a placement makes to a MetaGraphDef.

    order: "full" enforces the execution order of every device (see `control_inputs`), "none" sets
        devices only.
    devices: planned device -> TensorFlow device, for every planned device with ops; by default
        `/device:GPU:0` for `GPU:0`.
    what: names the graph in errors.

    Raises:
        BadInputError: the placement is of another graph, its order contradicts the graph, the
            mapping of devices does not fit, ops that must share a device are placed on two, or an
            op has no kernel for its device.
    """
    step = read_step(meta, what)
    _check_same_graph(meta, step, placement, what)
    return changes_of_step(meta, step, placement, order=order, devices=devices, what=what)


def changes_of_step(
    meta: Any,
    step: StepGraph,
    placement: PlacementFile,
    *,
    order: Order = "full",
    devices: Mapping[str, str] | None = None,
    what: str = "the graph",
) -> Changes:
    """Return the changes for a step that was read from `meta` and is that of the placement.

    Arguments and errors are those of `planned_changes`. If the placement splits ops, the sizes of
    the data must be static.
    """
    if not placement.plan:
        return _changes_of_ops(meta, step, placement, order, devices)
    _check_static(step, what)
    split = split_step(meta, step, placement.plan)
    step = read_step(split.meta, f"{what}, split", open_shapes=True)
    changes = _changes_of_ops(split.meta, step, placement, order, devices)
    return replace(changes, split=split.meta, variables=split.variables)


def _changes_of_ops(
    meta: Any,
    step: StepGraph,
    placement: PlacementFile,
    order: Order,
    devices: Mapping[str, str] | None,
) -> Changes:
    """Return the changes for a step that has the ops that are placed."""
    placed = placement.of_graph(step.graph)
    _check_groups(step.graph, placed, placement.devices)
    names = tensorflow_devices(placement.devices, set(placed.device.tolist()), devices or {})
    _check_kernels(step, placed, names)
    return changes_on(meta, step, placed, names, order=order)


def changes_on(
    meta: Any,
    step: StepGraph,
    placed: Placement,
    names: Mapping[int, str],
    *,
    order: Order = "full",
) -> Changes:
    """Return the changes for a placement of a step without checking it.

    names: device index -> TensorFlow device, for every device with ops.
    """
    name_of_op = [names[index] for index in placed.device.tolist()]
    device = {node: name_of_op[op] for op, nodes in enumerate(step.nodes) for node in nodes}
    device |= {node: name_of_op[op] for node, op in step.constants.items()}
    device |= devices_of_other_handles(step.wiring, device)
    classes = classes_to_drop(step.wiring, device)
    if order == "none":
        return Changes(device, {}, classes, step=step)
    ordered = ordered_ops(meta, step)
    waits_for = separated(step.wiring.nodes, device, control_inputs(step, placed, ordered))
    sent = sent_first(step, ordered, name_of_op, waits_for)
    return Changes(device, waits_for, classes, sent, step)


def _check_same_graph(meta: Any, step: StepGraph, placement: PlacementFile, what: str) -> None:
    if placement.graph_hash not in (None, step.graph_hash):
        if PLACED in meta.collection_def:
            raise BadInputError(
                f"{what} is placed already, and has the control dependencies of that placement; "
                "give the graph that was profiled."
            )
        raise BadInputError(
            f"placement of another graph: it is for the graph with hash "
            f"{placement.graph_hash[:12]}, but this graph has {step.graph_hash[:12]}; apply it to "
            "the graph that was profiled, or profile and solve this graph."
        )


def _check_static(step: StepGraph, what: str) -> None:
    """Raise BadInputError if data comes into a step in tensors of open sizes."""
    nodes, op_defs = step.wiring.nodes, step.wiring.op_defs
    for node, sizes in zip(nodes, step.sizes, strict=True):
        brings_data = all(is_handle(nodes[source], op_defs) for source, _ in node.inputs)
        if brings_data and not all(size.is_exact or size.is_handle for size in sizes):
            raise BadInputError(
                f"{what}: the sizes of what {node.name!r} ({node.type}) outputs are open, but the "
                "placement splits ops into parts of fixed sizes; static sizes were expected: batch "
                "data sets with drop_remainder=True, and give arguments static shapes, or solve "
                "with --max-parts 1."
            )


def _check_groups(graph: OpGraph, placed: Placement, planned: Sequence[str]) -> None:
    """Raise BadInputError if ops with a common variable are on two devices.

    Otherwise, TensorFlow would silently move one of them to the other's device.
    """
    first = graph.groups.indices[graph.groups.offsets[:-1]][graph.colocation_group]
    split = placed.device != placed.device[first]
    if split.any():
        op = int(np.argmax(split))
        raise BadInputError(
            f"op {graph.names[op]!r} is on {planned[placed.device[op]]}, and "
            f"{graph.names[first[op]]!r}, with which it shares a variable or other state, on "
            f"{planned[placed.device[first[op]]]}; one device for both was expected: solve a "
            "profile of this graph again."
        )


def _check_kernels(step: StepGraph, placed: Placement, names: Mapping[int, str]) -> None:
    for index, name in names.items():
        if device_type(name) not in step.supported:
            raise BadInputError(
                f"the placement has ops on {name}, but the kernels are known only for "
                f"{' and '.join(step.supported)} devices; one of these was expected: map the "
                "device to one with `pesto apply --devices`."
            )
        lacking = (placed.device == index) & ~step.supported[device_type(name)]
        if lacking.any():
            op = int(np.argmax(lacking))
            raise BadInputError(
                f"op {step.graph.names[op]!r} ({step.graph.types[op]}) is placed on {name}, which "
                "has no kernel for it; a device of another type was expected: map the device to "
                "one with `pesto apply --devices`."
            )
