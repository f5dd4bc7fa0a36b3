"""Find the nodes that run only if a branch is taken, in conditionals of Switches and Merges."""

from collections.abc import Collection, Sequence

from pesto_cli.graphdef.nodes import MERGE, Node

SWITCH = frozenset({"Switch", "RefSwitch", "_SwitchN"})

Branch = tuple[int, int, int]
"""(node index of the predicate, its output number, output number of the Switch)"""


def branches(
    nodes: Sequence[Node], order: Sequence[int], in_frame: Collection[int]
) -> list[frozenset[Branch]]:
    """Return for each node the branches that it needs: it runs only if all of them are taken.

    A Switch forwards its data to one of its outputs. The other output is dead, and so is every node
    with a dead data or control input. The exception is a Merge, which runs when one of its data
    inputs is alive. So a node needs each branch that any of its inputs needs, and a Merge needs the
    branches that all its data inputs have in common. Switches inside frames (`in_frame`) are
    ignored: they only decide how often a loop body runs. `order` is topological.
    """
    needs: dict[int, frozenset[Branch]] = {}

    def given(source: int, output: int) -> frozenset[Branch]:
        if nodes[source].type not in SWITCH or source in in_frame:
            return needs[source]
        return needs[source] | {(*nodes[source].inputs[1], output)}

    for index in order:
        node = nodes[index]
        # The input of a Merge from NextIteration is not in `needs` yet: it is later in `order`.
        data = [given(*entry) for entry in node.inputs if entry[0] in needs]
        if node.type in MERGE and index not in in_frame:
            needs[index] = frozenset.intersection(*data)
        else:
            needs[index] = frozenset().union(*data, *(needs[source] for source in node.controls))
    return [needs[index] for index in range(len(nodes))]
