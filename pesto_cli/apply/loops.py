"""Where control edges may touch an op: v1 while loops take them at Enter and give them at Exit.

TensorFlow refuses a graph with any other control edge across the border of a loop.
"""

from collections.abc import Iterator, Sequence

from pesto_cli.graphdef.frames import ENTER, EXIT
from pesto_cli.graphdef.nodes import Node


def first_nodes(nodes: Sequence[Node], members: Sequence[int]) -> Iterator[str]:
    """Yield the nodes of an op that must wait for all of it to wait.

    members: the indices of its nodes. Of a loop, the outermost Enters.
    """
    own = set(members)
    for index in members:
        enters = nodes[index].type in ENTER and own.isdisjoint(nodes[index].sources)
        if len(members) == 1 or enters:
            yield nodes[index].name


def last_nodes(nodes: Sequence[Node], members: Sequence[int]) -> Iterator[str]:
    """Yield the nodes of an op that have all ended when it has; of a loop, the outermost Exits."""
    within = {source for index in members for source in nodes[index].sources}
    for index in members:
        exits = nodes[index].type in EXIT and index not in within
        if len(members) == 1 or exits:
            yield nodes[index].name
