"""Writing placements into graphs."""

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
    """Return a copy of a graph with a placement's devices and control dependencies for its order.

    Args:
        meta: the MetaGraphDef that was profiled; it is not changed.
        placement: a placement of its ops.
        order: "full" enforces the order of every device, "none" sets devices only.
        devices: the TensorFlow device for each planned device that has ops. By default,
            `/device:GPU:0` for `GPU:0` and so on.

    Returns:
        A MetaGraphDef.

    Raises:
        BadInputError: the placement is of another graph, its order contradicts the graph, or
            TensorFlow cannot run ops on the devices of the placement.

    Example:
        >>> save("rnnlm.placed.meta", apply(graph, placement(profile, result)))
    """
    return apply_to_graph(meta, placement, order=order, devices=devices)
