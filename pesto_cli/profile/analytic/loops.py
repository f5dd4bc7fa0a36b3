"""How often each node of a graph with v1 while loops runs in one step, where the graph tells."""

import math
from collections.abc import Iterator, Sequence
from functools import cache

from pesto_cli.graphdef.frames import ENTER, EXIT
from pesto_cli.graphdef.nodes import MERGE, NEXT_ITERATION, Node
from pesto_cli.graphdef.signature import constant_value

Frame = tuple[str, ...]
"""The names of a loop and of those around it, outermost first."""

# What hands on its first input as it is.
PASSING = ENTER | NEXT_ITERATION | {"Identity", "Switch", "RefSwitch"}
# Type -> (sign of the step that ends the loop, whether it goes on at equality).
COMPARISONS = {
    "Less": (1, 0),
    "LessEqual": (1, 1),
    "Greater": (-1, 0),
    "GreaterEqual": (-1, 1),
}


class Loops:
    """The while loops of a graph, and how often they run.

    The number of trips is known where the condition compares a counter that grows or falls by a
    constant with a bound: `while_loop` over a range, a `maximum_iterations`, the gradient of such
    a loop. Of several comparisons that must all hold, the first to fail ends the loop.
    """

    def __init__(self, nodes: Sequence[Node], order: Sequence[int]) -> None:
        """Find the frames; `order` is topological."""
        self._nodes = nodes
        self.frames = _frames(nodes, order)
        self._conditions = {
            self.frames[index]: index for index, node in enumerate(nodes) if node.type == "LoopCond"
        }
        self.trips = cache(self._trips)

    @property
    def of_unknown_length(self) -> list[Frame]:
        """Loops of which the graph does not tell how often they run."""
        return [frame for frame in self._conditions if self.trips(frame) is None]

    def iterations(self, index: int) -> int:
        """How often a node runs; a loop of unknown length counts once."""
        frame = self.frames[index]
        trips = [self.trips(frame[:depth]) for depth in range(1, len(frame) + 1)]
        return math.prod(1 if count is None else count for count in trips)

    def _trips(self, frame: Frame) -> int | None:
        if frame not in self._conditions:
            return None
        counts = map(self._count, self._comparisons(self._conditions[frame]))
        return min((count for count in counts if count is not None), default=None)

    def _comparisons(self, condition: int) -> Iterator[int]:
        """Yield the comparisons that must all hold for a condition to hold."""
        node = self._nodes[condition]
        if node.type in COMPARISONS:
            yield condition
        elif node.type in ("LoopCond", "Identity", "LogicalAnd"):
            for source, _ in node.inputs:
                yield from self._comparisons(source)

    def _count(self, comparison: int) -> int | None:
        """How often a comparison of a counter with a bound holds."""
        node = self._nodes[comparison]
        sign, at_equality = COMPARISONS[node.type]
        counter = self._counter(self._source(node.inputs[0][0]))
        bound = self._value(node.inputs[1][0])
        if counter is None or bound is None or counter[1] * sign <= 0:
            return None
        start, step = counter
        return max(0, -(((start - bound) * sign - at_equality) // abs(step)))

    def _value(self, index: int) -> int | None:
        """The integer that a node gives: a constant, or a counter at the end of its loop."""
        node = self._nodes[self._source(index)]
        if node.type in EXIT:
            last = self._source(node.inputs[0][0])
            counter, trips = self._counter(last), self.trips(self.frames[last])
            return None if counter is None or trips is None else counter[0] + counter[1] * trips
        if node.type in MERGE:
            counter = self._counter(self._source(index))
            return counter[0] if counter is not None and counter[1] == 0 else None
        return _constant(node)

    def _counter(self, merge: int) -> tuple[int, int] | None:
        """(start, step) of a loop variable that each iteration changes by a constant."""
        node = self._nodes[merge]
        if node.type not in MERGE:
            return None
        sources = [source for source, _ in node.inputs]
        entries = [s for s in sources if self._nodes[s].type not in NEXT_ITERATION]
        returns = [s for s in sources if self._nodes[s].type in NEXT_ITERATION]
        if len(entries) != 1 or len(returns) != 1:
            return None
        start, step = self._value(entries[0]), self._step(self._source(returns[0]), merge)
        return None if start is None or step is None else (start, step)

    def _step(self, update: int, merge: int) -> int | None:
        """What one iteration adds to the loop variable that enters it at `merge`."""
        if update == merge:
            return 0
        node = self._nodes[update]
        if node.type not in ("Add", "AddV2", "Sub") or len(node.inputs) != 2:
            return None
        left, right = (self._source(source) for source, _ in node.inputs)
        if left != merge:
            return None
        step = _constant(self._nodes[right])
        return -step if step is not None and node.type == "Sub" else step

    def _source(self, index: int) -> int:
        """The node whose first output a node hands on; itself where it makes its own."""
        while self._nodes[index].type in PASSING:
            index = self._nodes[index].inputs[0][0]
        return index


def _frames(nodes: Sequence[Node], order: Sequence[int]) -> list[Frame]:
    """Return the frame that each node runs in; an Enter and an Exit run in the one around.

    After `BuildControlFlowInfo` in TensorFlow's control_flow.cc.
    """
    given: list[Frame] = [()] * len(nodes)
    frames: list[Frame] = [()] * len(nodes)
    for index in order:
        node = nodes[index]
        frame = max((given[source] for source in node.sources), key=len, default=())
        if node.type in EXIT:
            frame = frame[:-1]
        frames[index] = given[index] = frame
        if node.type in ENTER:
            given[index] = (*frame, node.proto.attr["frame_name"].s.decode())
    return frames


def _constant(node: Node) -> int | None:
    """The value of an integer scalar constant."""
    if node.type != "Const" or node.proto.attr["value"].tensor.tensor_shape.dim:
        return None
    array = constant_value(node.proto)
    return int(array) if array.dtype.kind == "i" else None
