"""Find the nodes that must share a device: TensorFlow's placer moves them back to their group."""

from pesto_cli.graphdef.devices import DT_RESOURCE, DT_VARIANT
from pesto_cli.graphdef.late_reads import late_reads
from pesto_cli.graphdef.outside_step import first_handles
from pesto_cli.graphdef.wiring import Wiring

FOLLOWS_ITS_INPUT = frozenset({"Switch", "RefSwitch", "_SwitchN"})


class UnionFind:
    """Disjoint sets of the integers 0..size-1. Each set is identified by its smallest member."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def find(self, member: int) -> int:
        """Return the smallest member of the set that contains `member`."""
        while self._parent[member] != member:
            self._parent[member] = self._parent[self._parent[member]]
            member = self._parent[member]
        return member

    def union(self, one: int, other: int) -> None:
        """Merge the sets of two members."""
        low, high = sorted((self.find(one), self.find(other)))
        self._parent[high] = low


def colocation_groups(wiring: Wiring) -> list[int]:
    """Return a group number for every node; nodes with the same number must share a device.

    A node is in the group of the producers of its references and resource handles, and of a
    reference variable that it reads after a write (`late_reads`). All handles of a variable are in
    one group, because each device has a variable of this name. A Switch is in the group of the
    producer of its data. All nodes of an outermost frame are in one group. The
    consumers of a variant are in its producer's group, too: a variant could be sent, but its size
    is unknown before the run (a TensorList is as large as what a loop writes to it). `_class`
    attributes are ignored, and `apply` removes them: the library that built the graph set them
    without need.
    """
    nodes = wiring.nodes
    groups = UnionFind(len(nodes))
    first_of_frame: dict[str, int] = {}
    for index, (node, frame) in enumerate(zip(nodes, wiring.frames, strict=True)):
        if frame is not None:
            groups.union(first_of_frame.setdefault(frame, index), index)
        if node.type in FOLLOWS_ITS_INPUT:
            groups.union(node.inputs[0][0], index)
        arguments = wiring.signature(index).inputs
        for argument, (source, _) in zip(arguments, node.inputs, strict=True):
            if argument.is_ref or argument.dtype in (DT_RESOURCE, DT_VARIANT):
                groups.union(source, index)
    for index, variable in (*late_reads(wiring).items(), *first_handles(nodes).items()):
        groups.union(variable, index)
    return [groups.find(index) for index in range(len(nodes))]
