"""How often each node of a graph with v1 while loops runs in one step, where the graph tells."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pesto_cli.graphdef.frames import ENTER, EXIT
from pesto_cli.graphdef.nodes import MERGE, Node
from pesto_cli.profile.analytic.constants import PASSING, Array, Constants

Frame = tuple[str, ...]
"""The names of a loop and of those around it, outermost first."""
Number = int | float
Counter = tuple[Number, Number]
"""(start, step) of a loop variable that each iteration changes by a constant."""

ENDLESS = math.inf
NEGATED = {
    "Less": "GreaterEqual",
    "LessEqual": "Greater",
    "Greater": "LessEqual",
    "GreaterEqual": "Less",
    "Equal": "NotEqual",
    "NotEqual": "Equal",
}
MIRRORED = {
    "Less": "Greater",
    "LessEqual": "GreaterEqual",
    "Greater": "Less",
    "GreaterEqual": "LessEqual",
    "Equal": "Equal",
    "NotEqual": "NotEqual",
}


class Loops:
    """The while loops of a graph, and how often they run.

    The number of trips is known where the condition compares a counter that grows or falls by a
    constant with a bound, and both follow from constants: `while_loop` over a range, AutoGraph's
    `for` over a `tf.range`, a `maximum_iterations`, the gradient of such a loop. Of several
    comparisons that must all hold, the first to fail ends the loop; those that depend on data are
    taken to hold.
    """

    def __init__(self, graph_def: Any, nodes: Sequence[Node], order: Sequence[int]) -> None:
        """Find the frames; `order` is topological."""
        self._nodes = nodes
        self.frames = _frames(nodes, order)
        self._conditions = {
            self.frames[index]: index for index, node in enumerate(nodes) if node.type == "LoopCond"
        }
        self._constants = Constants(graph_def, nodes, order, self._at_exit)
        self._trips: dict[Frame, int | None] = {}

    @property
    def of_unknown_length(self) -> list[Frame]:
        """Loops of which the graph does not tell how often they run."""
        return [frame for frame in self._conditions if self.trips(frame) is None]

    def iterations(self, index: int) -> int:
        """How often a node runs; a loop of unknown length counts once."""
        frame = self.frames[index]
        trips = [self.trips(frame[:depth]) for depth in range(1, len(frame) + 1)]
        return math.prod(1 if count is None else count for count in trips)

    def trips(self, frame: Frame) -> int | None:
        """How often a loop runs each time that it is entered; None if the graph does not tell."""
        if frame not in self._trips:
            self._trips[frame] = None  # for a bound that depends on it
            condition = self._conditions.get(frame)
            count = None
            if condition is not None:
                count = self._count(self._nodes[condition].inputs[0][0], negated=False)
            self._trips[frame] = None if count is None or count == ENDLESS else int(count)
        return self._trips[frame]

    def _count(self, condition: int, negated: bool) -> Number | None:
        """How often a condition, or its negation, holds before it fails; None if data decides."""
        index = self._constants.source(condition)
        known = self._constants.value(index)
        if known is not None:
            return ENDLESS if bool(known) != negated else 0
        node = self._nodes[index]
        if node.type == "LogicalNot":
            return self._count(node.inputs[0][0], not negated)
        if node.type in ("LogicalAnd", "LogicalOr"):
            counts = [self._count(source, negated) for source, _ in node.inputs]
            return _joined(counts, (node.type == "LogicalAnd") != negated)
        if node.type in MERGE and self._constants.entry(index) is None:
            return self._chosen(node, negated)
        if node.type not in NEGATED:
            return None
        return self._compared(NEGATED[node.type] if negated else node.type, node)

    def _chosen(self, merge: Node, negated: bool) -> Number | None:
        """How often a conditional holds of which one branch gives a constant.

        So AutoGraph writes `a and b`, `a or b` and a loop with a `break`:

            False if p else q  =  (not p) and q        True if p else q  =  p or q
        """
        for branch, other in zip(merge.inputs, reversed(merge.inputs), strict=True):
            found = self._constant_branch(*branch)
            if found is not None:
                constant, predicate, holds = found
                counts = [
                    self._count(predicate, negated != (holds != constant)),
                    self._count(other[0], negated),
                ]
                return _joined(counts, constant == negated)
        return None

    def _constant_branch(self, index: int, output: int) -> tuple[bool, int, bool] | None:
        """(what a branch gives, the predicate that chooses it, what this has to be) if constant."""
        while self._nodes[index].type in PASSING:
            node = self._nodes[index]
            if node.type == "Switch":
                value, predicate = (self._constants.source(source) for source, _ in node.inputs)
                if value == predicate:
                    return output == 1, predicate, output == 1
            index, output = node.inputs[0]
        known, guard = self._constants.value(index), self._guard(index)
        return None if known is None or guard is None else (bool(known), *guard)

    def _guard(self, constant: int) -> tuple[int, bool] | None:
        """The predicate for whose sake a constant is given, and what it has to be."""
        waiting = [(index, 0) for index in self._nodes[constant].controls]
        seen: set[int] = set()
        while waiting:
            index, output = waiting.pop(0)
            node = self._nodes[index]
            if node.type == "Switch":
                return node.inputs[1][0], output == 1
            if index not in seen and node.type in ("Identity", "NoOp"):
                waiting += [*node.inputs, *((source, 0) for source in node.controls)]
            seen.add(index)
        return None

    def _compared(self, comparison: str, node: Node) -> Number | None:
        """How often a comparison of a counter with a bound holds."""
        left, right = (source for source, _ in node.inputs)
        for kind, variable, limit in (
            (comparison, left, right),
            (MIRRORED[comparison], right, left),
        ):
            counter = self._counter(self._constants.source(variable))
            bound = self._number(limit)
            if counter is not None and bound is not None:
                return _count(kind, counter, bound)
        return None

    def _at_exit(self, merge: int) -> Array | None:
        """What a loop variable is at the end of its loop."""
        counter = self._counter(merge)
        if counter is None:
            return None
        start, step = counter
        trips = 0 if step == 0 else self.trips(self.frames[merge])
        return None if trips is None else np.array(start + step * trips)

    def _number(self, index: int) -> Number | None:
        """The number that a node gives, where it gives one that is known."""
        value = self._constants.value(index)
        if value is None or value.shape or value.dtype.kind not in "iuf":
            return None
        number: Number = value.item()
        return number

    def _counter(self, merge: int) -> Counter | None:
        """The (start, step) of the loop variable at a Merge."""
        ways = self._constants.entry(merge)
        if ways is None:
            return None
        start, step = self._number(ways[0]), self._step(ways[1], merge)
        return None if start is None or step is None else (start, step)

    def _step(self, update: int, merge: int) -> Number | None:
        """What one iteration adds to the loop variable that enters it at `merge`."""
        step: Number = 0
        index = self._constants.source(update)
        while index != merge:
            node = self._nodes[index]
            if node.type not in ("Add", "AddV2", "Sub"):
                return None
            left, right = (source for source, _ in node.inputs)
            added = self._number(right)
            if added is None and node.type != "Sub":
                left, added = right, self._number(left)
            if added is None:
                return None
            step += -added if node.type == "Sub" else added
            index = self._constants.source(left)
        return step


def _joined(counts: Sequence[Number | None], all_must_hold: bool) -> Number | None:
    """How often several conditions, all or one of them, hold; None stands for data."""
    found = [count for count in counts if count is not None]
    if all_must_hold:
        return min(found, default=None)
    return max(found) if len(found) == len(counts) else None


def _count(comparison: str, counter: Counter, bound: Number) -> Number | None:
    """How often `counter < bound`, or another comparison, holds from the start on.

    None where it holds for ever, as far as numbers have no end.
    """
    start, step = counter
    distance = bound - start
    if comparison == "Equal":
        return 0 if distance else (1 if step else None)
    if comparison == "NotEqual":
        ends = distance == 0 or (step != 0 and distance % step == 0 and distance / step > 0)
        return int(distance // step) if ends and distance else (0 if ends else None)
    if comparison in ("Greater", "GreaterEqual"):
        distance, step = -distance, -step
    at_equality = comparison in ("LessEqual", "GreaterEqual")
    if distance < 0 or (distance == 0 and not at_equality):
        return 0
    if step <= 0:
        return None
    return math.floor(distance / step) + 1 if at_equality else math.ceil(distance / step)


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
