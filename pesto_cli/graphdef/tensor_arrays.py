"""What TensorArrays hold: elements as large as what is written, and gradients as large as these."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pesto_cli.graphdef.nodes import Node

Shape = tuple[int | None, ...]
Held = tuple[Shape | None, int]
"""Static shape, if it is known, and number of elements."""

# Ops that write and read one element, and a stack of them; inputs: 1 indices, 2 value.
WRITE, SCATTER = "TensorArrayWriteV3", "TensorArrayScatterV3"
READ, GATHER = "TensorArrayReadV3", "TensorArrayGatherV3"


@dataclass
class TensorArrays:
    """The elements of a step's TensorArrays, learnt node by node in topological order.

    array_of: node index -> the TensorArrayV3 whose handle the node passes on; that of a gradient is
        its forward array, whose elements are as large. elements: array -> one element.
    """

    nodes: Sequence[Node]
    array_of: dict[int, int] = field(default_factory=dict)
    elements: dict[int, Held] = field(default_factory=dict)

    def learn(self, index: int, taken: Sequence[Held | None]) -> None:
        """Take in a node; `taken` are its inputs, None where nothing bounds their size."""
        node = self.nodes[index]
        if node.type == "TensorArrayV3":
            self.array_of[index] = index
        elif node.inputs and node.inputs[0][0] in self.array_of:
            array = self.array_of[node.inputs[0][0]]
            if node.type in (READ, GATHER):
                return
            self.array_of[index] = array
            if node.type in (WRITE, SCATTER) and (value := taken[2]) is not None:
                self.elements[array] = value if node.type == WRITE else _row(value, taken[1])

    def read_by(self, index: int, taken: Sequence[Held | None]) -> Held | None:
        """What a node takes out of an array, where the node does so and what is there is known."""
        node = self.nodes[index]
        if node.type not in (READ, GATHER):
            return None
        element = self.elements.get(self.array_of.get(node.inputs[0][0], -1))
        if element is None or node.type == READ:
            return element
        return None if taken[1] is None else _stacked(element, taken[1])


def _row(stack: Held, indices: Held | None) -> Held:
    shape, num_elements = stack
    if shape:
        shape = shape[1:]
    return shape, -(-num_elements // max(indices[1] if indices else 1, 1))


def _stacked(element: Held, indices: Held) -> Held:
    (shape, num_elements), (indices_shape, count) = element, indices
    known = None if shape is None or indices_shape is None else (*indices_shape, *shape)
    return known, count * num_elements
