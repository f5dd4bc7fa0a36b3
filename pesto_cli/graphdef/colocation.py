"""Which nodes must share a device: TensorFlow's placer moves a node that leaves its group."""

from collections.abc import Sequence

from pesto_cli.graphdef.devices import DT_RESOURCE, DT_VARIANT
from pesto_cli.graphdef.nodes import Node
from pesto_cli.graphdef.signature import OpDefs

FOLLOWS_ITS_INPUT = frozenset({"Switch", "RefSwitch", "_SwitchN"})


class UnionFind:
    """Disjoint sets of 0..size-1, each known by its smallest member."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def find(self, member: int) -> int:
        """Return the smallest member of the set."""
        while self._parent[member] != member:
            self._parent[member] = self._parent[self._parent[member]]
            member = self._parent[member]
        return member

    def union(self, one: int, other: int) -> None:
        """Make one set of two."""
        low, high = sorted((self.find(one), self.find(other)))
        self._parent[high] = low


def colocation_groups(
    nodes: Sequence[Node], frames: Sequence[str | None], op_defs: OpDefs
) -> list[int]:
    """Return a group number for every node; nodes of one number must share a device.

    A node joins the producers of its references and resource handles, a Switch that of its data,
    and the nodes of an outermost frame are together. Variants could cross devices, but not at a
    cost that is known before the run: a TensorList has as many bytes as the loop that filled it put
    there. So they stay with their producers too. `_class` attributes are requests of the library
    that built the graph, not needs: `apply` drops them.
    """
    groups = UnionFind(len(nodes))
    first_of_frame: dict[str, int] = {}
    for index, (node, frame) in enumerate(zip(nodes, frames, strict=True)):
        if frame is not None:
            groups.union(first_of_frame.setdefault(frame, index), index)
        if node.type in FOLLOWS_ITS_INPUT:
            groups.union(node.inputs[0][0], index)
        arguments = op_defs.signature(node.proto).inputs
        for argument, (source, _) in zip(arguments, node.inputs, strict=True):
            if argument.is_ref or argument.dtype in (DT_RESOURCE, DT_VARIANT):
                groups.union(source, index)
    return [groups.find(index) for index in range(len(nodes))]
