"""Measured sizes of tensors."""

from collections.abc import Iterator, Mapping

from pesto_cli.data.graph import IntArray
from pesto_cli.profile.source import CostRequest

OutputBytes = Mapping[str, Mapping[int, int]]
"""node -> output number -> bytes"""


def measured_sizes(output_bytes: OutputBytes, request: CostRequest) -> IntArray:
    """Return the size of each tensor in bytes, `[num_tensors]`.

    Measured sizes replace estimated ones, which depend on the data; static sizes stay.
    """
    tensor_bytes = request.step.graph.tensor_bytes.copy()
    for tensor, num_bytes in _sizes(output_bytes, request):
        if request.step.estimated[tensor]:
            tensor_bytes[tensor] = num_bytes
    return tensor_bytes


def size_notes(output_bytes: OutputBytes, request: CostRequest) -> Iterator[str]:
    """Yield a note if measured sizes differ from static ones, as with another batch size."""
    graph = request.step.graph
    static = [
        (tensor, num_bytes)
        for tensor, num_bytes in _sizes(output_bytes, request)
        if not request.step.estimated[tensor]
    ]
    others = [(tensor, size) for tensor, size in static if graph.tensor_bytes[tensor] != size]
    if others:
        tensor, num_bytes = max(others, key=lambda other: graph.tensor_bytes[other[0]])
        yield (
            f"{len(others)} of {len(static)} static sizes differ from the measured ones; the "
            f"largest, of {graph.names[graph.tensor_producer[tensor]]!r}, had {num_bytes:,} bytes "
            f"instead of {graph.tensor_bytes[tensor]:,}: measure with the shapes (the batch size) "
            "that the graph was exported with."
        )


def _sizes(output_bytes: OutputBytes, request: CostRequest) -> Iterator[tuple[int, int]]:
    """Yield (tensor, measured bytes) for all measured outputs of ops that are one node.

    Loops are left out: their recorded nodes do not show which of them computes which output.
    """
    graph, nodes = request.step.graph, request.step.nodes
    for name, sizes in output_bytes.items():
        op = graph.index_of.get(name)
        if op is not None and nodes[op] == (name,):
            outputs = graph.tensors_of(op)
            yield from (
                (outputs[slot], size) for slot, size in sizes.items() if slot < len(outputs)
            )
