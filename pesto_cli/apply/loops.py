"""Find the nodes of an op that may have control edges to other ops.

Control edges into a v1 while loop must end at an Enter, and control edges out of it must start at
an Exit. TensorFlow rejects a graph with any other control edge across the border of a loop.
"""

from collections.abc import Iterator, Sequence

from pesto_cli.graphdef.frames import ENTER, EXIT
from pesto_cli.graphdef.nodes import Node


def first_nodes(nodes: Sequence[Node], members: Sequence[int]) -> Iterator[str]:
    """Yield the nodes of an op that must wait so that the whole op waits; for a loop, outer Enters.

    members: the indices of the op's nodes.
    """
    own = set(members)
    for index in members:
        enters = nodes[index].type in ENTER and own.isdisjoint(nodes[index].sources)
        if len(members) == 1 or enters:
            yield nodes[index].name


def last_nodes(nodes: Sequence[Node], members: Sequence[int]) -> Iterator[str]:
    """Yield the nodes of an op that end last; for a loop, the outermost Exits."""
    within = {source for index in members for source in nodes[index].sources}
    for index in members:
        exits = nodes[index].type in EXIT and index not in within
        if len(members) == 1 or exits:
            yield nodes[index].name
