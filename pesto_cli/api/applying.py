"""Placements written back into graphs."""

from collections.abc import Mapping
from typing import Any

from pesto_cli.api.arguments import MetaGraph, checked
from pesto_cli.apply import Order
from pesto_cli.apply import apply as apply_to_graph
from pesto_cli.files import PlacementFile


@checked
def apply(
    meta: MetaGraph,
    placement: PlacementFile,
    *,
    order: Order = "full",
    devices: Mapping[str, str] | None = None,
) -> Any:
    """A copy of a graph with the devices of a placement, and control dependencies for its order.

    Args:
        meta: the MetaGraphDef that was profiled; it is left as it is.
        placement: of its ops.
        order: "full" enforces the order of every device, "none" sets devices only.
        devices: TensorFlow's device for every planned one that has ops, `/device:GPU:0` for
            `GPU:0` unless it is given.

    Returns:
        A MetaGraphDef.

    Raises:
        BadInputError: the placement is of another graph, its order contradicts the graph, or ops
            are put where TensorFlow would not let them be.

    Example:
        >>> save("rnnlm.placed.meta", apply(graph, placement(profile, result)))
    """
    return apply_to_graph(meta, placement, order=order, devices=devices)
