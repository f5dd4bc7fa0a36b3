"""Trip counts: how often each node of a graph with v1 while loops runs in one step.

A trip count is only known if it follows from constants of the graph.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pesto_cli.graphdef.frames import ENTER, EXIT
from pesto_cli.graphdef.kernel_calls import Array
from pesto_cli.graphdef.nodes import MERGE, Node
from pesto_cli.profile.analytic.constants import PASSING, Constants

Frame = tuple[str, ...]
"""The names of a loop and of the loops around it, outermost first; () outside of loops."""
Number = int | float
Counter = tuple[Number, Number]
"""(start, step) of a loop variable to which each iteration adds the constant `step`."""

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
    """The while loops of a graph and their trip counts.

    A trip count is known if the loop condition compares a counter with a bound, the counter changes
    by a constant in each iteration, and start, step and bound follow from constants. Examples are
    `while_loop` over a range, AutoGraph's `for` over a `tf.range`, `maximum_iterations`, and the
    gradients of such loops. If the condition is a conjunction, the first comparison that fails ends
    the loop, and comparisons that depend on data are assumed to hold.
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
        """The loops whose trip count is unknown."""
        return [frame for frame in self._conditions if self.trips(frame) is None]

    def iterations(self, index: int) -> int:
        """Return how often a node runs in a step; a loop of unknown trip count counts as 1."""
        frame = self.frames[index]
        trips = [self.trips(frame[:depth]) for depth in range(1, len(frame) + 1)]
        return math.prod(1 if count is None else count for count in trips)

    def trips(self, frame: Frame) -> int | None:
        """Return the number of iterations each time that a loop is entered; None if unknown."""
        if frame not in self._trips:
            self._trips[frame] = None  # Ends the recursion if the bound depends on the loop itself.
            condition = self._conditions.get(frame)
            count = None
            if condition is not None:
                count = self._count(self._nodes[condition].inputs[0][0], negated=False)
            self._trips[frame] = None if count is None or count == ENDLESS else int(count)
        return self._trips[frame]

    def _count(self, condition: int, negated: bool) -> Number | None:
        """Return how often a condition (or its negation) holds before it fails.

        None if that depends on data.
        """
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
        """Return how often a conditional holds if one of its branches is a constant.

        AutoGraph writes `a and b`, `a or b` and loops with `break` in this form:

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
        """Return (the branch's value, its predicate, the predicate's value that selects it).

        None if the branch is not constant.
        """
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
        """Return the predicate that a constant in a branch depends on, and the value it must have.

        It is found through the control edges of the constant; None if there is no such predicate.
        """
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
        """Return how often a comparison of a counter with a bound holds; None if unknown."""
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
        """Return the value of a loop variable after its loop; None if unknown."""
        counter, ways = self._counter(merge), self._constants.entry(merge)
        initial = None if ways is None else self._constants.value(ways[0])
        if counter is None or initial is None:
            return None
        start, step = counter
        trips = 0 if step == 0 else self.trips(self.frames[merge])
        return None if trips is None else np.array(start + step * trips, dtype=initial.dtype)

    def _number(self, index: int) -> Number | None:
        """Return the constant scalar that a node computes; None if unknown or not a number."""
        value = self._constants.value(index)
        if value is None or value.shape or value.dtype.kind not in "iuf":
            return None
        number: Number = value.item()
        return number

    def _counter(self, merge: int) -> Counter | None:
        """Return the (start, step) of the loop variable at a Merge; None if unknown."""
        ways = self._constants.entry(merge)
        if ways is None:
            return None
        start, step = self._number(ways[0]), self._step(ways[1], merge)
        return None if start is None or step is None else (start, step)

    def _step(self, update: int, merge: int) -> Number | None:
        """Return what one iteration adds to the loop variable at `merge`; None if unknown."""
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
    """Return how often the conjunction or disjunction of several conditions holds.

    None stands for a condition that depends on data.
    """
    found = [count for count in counts if count is not None]
    if all_must_hold:
        return min(found, default=None)
    return max(found) if len(found) == len(counts) else None


def _count(comparison: str, counter: Counter, bound: Number) -> Number | None:
    """Return how often a comparison such as `counter < bound` holds before it fails.

    None if it never fails; overflow of the counter is left out.
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
    """Return the frame that each node runs in; Enter and Exit belong to the enclosing frame.

    Source: `BuildControlFlowInfo` in TensorFlow's control_flow.cc.
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
