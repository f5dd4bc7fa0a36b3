"""Sizes of tensors, as they were measured."""

from collections.abc import Iterator, Mapping

from pesto_cli.data.graph import IntArray
from pesto_cli.profile.source import CostRequest

OutputBytes = Mapping[str, Mapping[int, int]]
"""node -> number of an output -> bytes"""


def measured_sizes(output_bytes: OutputBytes, request: CostRequest) -> IntArray:
    """Return the bytes of the step's tensors, measured where the data decides, `[num_tensors]`."""
    tensor_bytes = request.step.graph.tensor_bytes.copy()
    for tensor, num_bytes in _sizes(output_bytes, request):
        if request.step.estimated[tensor]:
            tensor_bytes[tensor] = num_bytes
    return tensor_bytes


def size_notes(output_bytes: OutputBytes, request: CostRequest) -> Iterator[str]:
    """Yield that static sizes are others than the measured: those of another batch, for one."""
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
            f"{len(others)} of {len(static)} outputs had another size than the graph says, the "
            f"largest that of {graph.names[graph.tensor_producer[tensor]]!r} with {num_bytes:,} "
            f"bytes in place of {graph.tensor_bytes[tensor]:,}: measure with the shapes (the batch "
            "size) that the graph was exported with."
        )


def _sizes(output_bytes: OutputBytes, request: CostRequest) -> Iterator[tuple[int, int]]:
    """Yield tensors and their measured bytes; what leaves a while loop is not told apart."""
    graph, nodes = request.step.graph, request.step.nodes
    for name, sizes in output_bytes.items():
        op = graph.index_of.get(name)
        if op is not None and nodes[op] == (name,):
            outputs = range(graph.op_tensors[op], graph.op_tensors[op + 1])
            yield from (
                (outputs[slot], size) for slot, size in sizes.items() if slot < len(outputs)
            )
