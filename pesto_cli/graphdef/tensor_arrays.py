"""Infer the element sizes of TensorArrays from what is written to them.

The elements of a gradient's array are as large as those of the forward array.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pesto_cli.graphdef.nodes import Node

Shape = tuple[int | None, ...]
KnownSize = tuple[Shape | None, int]
"""Static shape, None if unknown, and number of elements of a tensor."""

# Ops that write and read one element, or a stack of elements; input 1 is the indices, 2 the value.
WRITE, SCATTER = "TensorArrayWriteV3", "TensorArrayScatterV3"
READ, GATHER = "TensorArrayReadV3", "TensorArrayGatherV3"


@dataclass
class TensorArrays:
    """The element sizes of a step's TensorArrays, collected node by node in topological order.

    array_of: node index -> index of the TensorArrayV3 whose handle the node forwards; for the array
        of a gradient, the index of its forward array.
    elements: index of a TensorArrayV3 -> size of one element.
    """

    nodes: Sequence[Node]
    array_of: dict[int, int] = field(default_factory=dict)
    elements: dict[int, KnownSize] = field(default_factory=dict)

    def process(self, index: int, inputs: Sequence[KnownSize | None]) -> None:
        """Process a node; `inputs` are the sizes of its inputs, None if unknown."""
        node = self.nodes[index]
        if node.type == "TensorArrayV3":
            self.array_of[index] = index
        elif node.inputs and node.inputs[0][0] in self.array_of:
            array = self.array_of[node.inputs[0][0]]
            if node.type in (READ, GATHER):
                return
            self.array_of[index] = array
            if node.type in (WRITE, SCATTER) and (value := inputs[2]) is not None:
                self.elements[array] = value if node.type == WRITE else _row(value, inputs[1])

    def size_read_by(self, index: int, inputs: Sequence[KnownSize | None]) -> KnownSize | None:
        """Return the size of what a node reads from an array; None if no read or size unknown."""
        node = self.nodes[index]
        if node.type not in (READ, GATHER):
            return None
        element = self.elements.get(self.array_of.get(node.inputs[0][0], -1))
        if element is None or node.type == READ:
            return element
        return None if inputs[1] is None else _stacked(element, inputs[1])


def _row(stack: KnownSize, indices: KnownSize | None) -> KnownSize:
    shape, num_elements = stack
    if shape:
        shape = shape[1:]
    return shape, -(-num_elements // max(indices[1] if indices else 1, 1))


def _stacked(element: KnownSize, indices: KnownSize) -> KnownSize:
    (shape, num_elements), (indices_shape, count) = element, indices
    known = None if shape is None or indices_shape is None else (*indices_shape, *shape)
    return known, count * num_elements
