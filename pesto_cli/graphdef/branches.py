"""Nodes that a run may skip: those in a branch of a conditional made of Switches and Merges."""

from collections.abc import Collection, Sequence

from pesto_cli.graphdef.nodes import MERGE, Node

SWITCH = frozenset({"Switch", "RefSwitch", "_SwitchN"})

Branch = tuple[int, int, int]
"""(node and output of the predicate, output of the Switch)"""


def branches(
    nodes: Sequence[Node], order: Sequence[int], in_frame: Collection[int]
) -> list[frozenset[Branch]]:
    """Return the branches that every node needs: it runs only if all of them are taken.

    A Switch gives its data to one output only. What hangs on the other one is dead, and a dead
    input, a control input too, kills the node that takes it; only a Merge goes on when one of its
    inputs lives. So a node needs the branches that any of its inputs needs, a Merge those that all
    of its data inputs need. Frames (`in_frame`) have Switches of their own, which decide only how
    often their bodies run. `order` is topological.
    """
    needs: dict[int, frozenset[Branch]] = {}

    def given(source: int, output: int) -> frozenset[Branch]:
        if nodes[source].type not in SWITCH or source in in_frame:
            return needs[source]
        return needs[source] | {(*nodes[source].inputs[1], output)}

    for index in order:
        node = nodes[index]
        # A Merge's input from NextIteration comes later in this order.
        data = [given(*entry) for entry in node.inputs if entry[0] in needs]
        if node.type in MERGE and index not in in_frame:
            needs[index] = frozenset.intersection(*data)
        else:
            needs[index] = frozenset().union(*data, *(needs[source] for source in node.controls))
    return [needs[index] for index in range(len(nodes))]
