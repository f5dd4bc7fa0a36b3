"""Find the `_class` attributes (colocation requests of a library) that contradict a placement."""

from collections.abc import Mapping

from pesto_cli.graphdef.colocation import UnionFind, colocation_groups
from pesto_cli.graphdef.nodes import Node, topological_order
from pesto_cli.graphdef.wiring import Wiring


def classes_to_drop(step: Wiring, device: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the nodes whose `_class` attribute is removed in the placed graph.

    These are all nodes of the step, because they have a device now, and each node outside the step
    whose attribute would put nodes of two devices into one colocation group. Nodes that share a
    variable are in one group, too.

    device: node name -> TensorFlow device, for every node of the step.
    """
    nodes = step.table.needed(step.table.position)
    index_of = {node.name: index for index, node in enumerate(nodes)}
    whole = Wiring(step.table, nodes, topological_order(nodes), step.op_defs)
    groups = colocation_groups(whole)
    devices: dict[int, set[str]] = {group: set() for group in groups}
    for node, group in zip(nodes, groups, strict=True):
        devices[group].update({device[node.name]} if node.name in device else ())
    sets, dropped = UnionFind(len(nodes)), set[str]()
    for node, group in zip(nodes, groups, strict=True):
        for target in _colocated_with(node, index_of):
            one, other = sets.find(group), sets.find(groups[target])
            together = devices[one] | devices[other]
            if node.name in device or len(together) > 1:
                dropped.add(node.name)
            else:
                sets.union(one, other)
                devices[sets.find(one)] = together
    return frozenset(dropped)


def _colocated_with(node: Node, index_of: Mapping[str, int]) -> list[int]:
    """Return the indices of the nodes that a `_class` attribute names.

    For a name that is not in the graph, return the index of the node itself.
    """
    if "_class" not in node.proto.attr:
        return []
    names = (entry.removeprefix(b"loc:@").decode() for entry in node.proto.attr["_class"].list.s)
    return [index_of.get(name, index_of[node.name]) for name in names]
