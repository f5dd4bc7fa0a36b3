"""Constant folding: the outputs of nodes that do not depend on the data of a step.

These are constants, and outputs of ops without side effects whose inputs are all constant. They are
used to find the bounds of loops, which AutoGraph computes in the graph. Such values are small, so
a value is only computed if it and all its inputs have at most MAX_ELEMENTS elements.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from pesto_cli.graphdef.constant_values import SHAPES
from pesto_cli.graphdef.frames import ENTER, EXIT
from pesto_cli.graphdef.kernel_calls import Array, computed
from pesto_cli.graphdef.nodes import MERGE, NEXT_ITERATION, Node
from pesto_cli.graphdef.signature import OpDefs, constant_value
from pesto_cli.graphdef.sizes import shapes_inferred

MAX_ELEMENTS = 1000
MAX_DEPTH = 100
"""Most ops on a path from a constant to a value; loop bounds need about ten."""
MAX_NESTING = 10

# Op types that return their first input unchanged.
PASSING = ENTER | NEXT_ITERATION | {"Identity", "Switch", "RefSwitch"}
POP, PUSH = "TensorListPopBack", "TensorListPushBack"
_PURE = """
    Add AddV2 Sub Mul Div RealDiv FloorDiv TruncateDiv FloorMod Mod TruncateMod Maximum Minimum Pow
    Neg Abs Sign Square SquaredDifference Ceil Floor Round Rint Cast
    Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot
    Select SelectV2 ZerosLike OnesLike Fill Range BroadcastTo BroadcastArgs
    Sum Prod Max Min Mean All Any ArgMax ArgMin
    Pack Unpack Concat ConcatV2 Split SplitV StridedSlice Slice Gather GatherV2
    Reshape Squeeze ExpandDims Transpose Tile
"""
PURE = frozenset(_PURE.split())

Output = tuple[int, int]
"""(node, output number)"""
Known = tuple[Array | None, ...]
"""The values of the first outputs of a node; None, and all further outputs, are unknown."""


class Constants:
    """The outputs of nodes that are the same in every step and in every loop iteration.

    at_exit: a function from the Merge node of a loop variable to its value after the loop; None if
        that is unknown.
    """

    def __init__(
        self,
        graph_def: Any,
        nodes: Sequence[Node],
        order: Sequence[int],
        at_exit: Callable[[int], Array | None],
    ) -> None:
        """`order` is topological."""
        self._graph_def, self._nodes, self._at_exit = graph_def, nodes, at_exit
        self._op_defs = OpDefs(graph_def.library)
        self._may_be_known = self._without_data(order)
        self._of_node: dict[int, Known] = {}

    def value(self, index: int, output: int = 0) -> Array | None:
        """Return the value of an output; None if it depends on data or is too large."""
        if not self._may_be_known[index]:
            return None
        if index not in self._of_node:
            self._of_node[index] = ()  # Ends the recursion of a list whose elements use the list.
            self._of_node[index] = self._known(self._nodes[index], index)
        known = self._of_node[index]
        found = known[output] if output < len(known) else None
        return found if found is not None and found.size <= MAX_ELEMENTS else None

    def source(self, index: int) -> int:
        """Follow nodes that pass on their input unchanged; return the node that computes it."""
        while self._nodes[index].type in PASSING:
            index = self._nodes[index].inputs[0][0]
        return index

    def entry(self, merge: int) -> tuple[int, int] | None:
        """Return the two inputs of the Merge of a loop variable: (first value, next iteration).

        None if the node is not such a Merge.
        """
        node = self._nodes[merge]
        if node.type not in MERGE:
            return None
        sources = [source for source, _ in node.inputs]
        entries = [s for s in sources if self._nodes[s].type not in NEXT_ITERATION]
        returns = [s for s in sources if self._nodes[s].type in NEXT_ITERATION]
        return (entries[0], returns[0]) if len(entries) == len(returns) == 1 else None

    def _without_data(self, order: Sequence[int]) -> list[bool]:
        """`[num_nodes]`: whether constants and shapes alone may decide a node's outputs.

        No path from a constant to such a node has more than MAX_DEPTH ops.
        """
        depth: list[int | None] = [None] * len(self._nodes)
        for index in order:
            node = self._nodes[index]
            if node.type in ("Const", POP) or node.type in SHAPES | EXIT:
                depth[index] = 0
            elif node.type in PASSING:
                depth[index] = depth[node.inputs[0][0]]
            elif node.type in MERGE:
                ways = self.entry(index)
                if ways is not None and self.source(ways[1]) == index:
                    depth[index] = depth[ways[0]]
            elif node.type in PURE:
                below = [depth[source] for source, _ in node.inputs]
                known = [number for number in below if number is not None]
                if len(known) == len(below) and max(known, default=0) < MAX_DEPTH:
                    depth[index] = max(known, default=0) + 1
        return [number is not None for number in depth]

    def _known(self, node: Node, index: int) -> Known:
        if node.type == "Const":
            return (constant_value(node.proto),)
        if node.type in SHAPES:
            return self._shapes(node)
        if node.type in EXIT:
            return (self._at_exit(self.source(node.inputs[0][0])),)
        if node.type == POP:
            return None, self._popped(node.inputs[0])
        if node.type in PASSING:
            return (self.value(*node.inputs[0]),) * 2  # A Switch has two outputs.
        if node.type in MERGE:
            ways = self.entry(index)
            return () if ways is None else (self.value(ways[0]),)
        return self._computed(node)

    def _popped(self, handle: Output) -> Array | None:
        """Return the common value of all elements of a TensorList.

        None if elements differ or one is unknown. A loop pushes a value to such a list in each
        iteration, and its gradient pops them.
        """
        pushed = self._pushed(handle, MAX_NESTING)
        first: Array | None = None
        for value in (self.value(*element) for element in pushed or ()):
            if value is None or not (first is None or np.array_equal(first, value)):
                return None
            first = value
        return first

    def _pushed(self, handle: Output, nesting: int) -> set[Output] | None:
        """Return the outputs that are pushed to any TensorList that a handle may refer to.

        None if they cannot be found. nesting: the deepest level of lists of lists to look at;
        loops within loops make these.
        """
        pushed: set[Output] = set()
        seen: set[Output] = set()
        waiting = [handle]
        while waiting:
            index, output = waiting.pop()
            if (index, output) in seen:
                continue
            seen.add((index, output))
            node, ways = self._nodes[index], self.entry(index)
            if ways is not None:
                waiting += [(way, 0) for way in ways]
            elif node.type == POP and output == 1:  # a list out of a list of lists
                lists = self._pushed(node.inputs[0], nesting - 1) if nesting else None
                if lists is None:
                    return None
                waiting += lists
            elif node.type in PASSING | EXIT | {PUSH, POP}:
                waiting.append(node.inputs[0])
                if node.type == PUSH:
                    pushed.add(node.inputs[1])
            elif node.type != "EmptyTensorList":
                return None
        return pushed

    @cached_property
    def _graph(self) -> Any:
        return shapes_inferred(self._graph_def, self._nodes)

    def _shapes(self, node: Node) -> Known:
        operation = self._graph.get_operation_by_name(node.name)
        if node.type in ("Shape", "ShapeN"):
            shapes = [tensor.shape for tensor in operation.inputs]
            found = [s.as_list() if s.is_fully_defined() else None for s in shapes]
        elif node.type == "Size":
            found = [operation.inputs[0].shape.num_elements()]
        else:
            found = [operation.inputs[0].shape.rank]
        dtype = operation.outputs[0].dtype.as_numpy_dtype
        return tuple(None if value is None else np.array(value, dtype) for value in found)

    def _computed(self, node: Node) -> Known:
        """Compute the outputs of an op with TensorFlow's kernel on the CPU; () if it fails."""
        outputs = self._graph.get_operation_by_name(node.name).outputs
        sizes = [tensor.shape.num_elements() for tensor in outputs]
        taken = [self.value(source, output) for source, output in node.inputs]
        known = [value for value in taken if value is not None]
        if len(known) < len(taken) or any(size is None or size > MAX_ELEMENTS for size in sizes):
            return ()
        return computed(node.proto, self._op_defs, known, len(outputs))
