"""The nodes of a step in topological order, and the precedence between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pesto_cli.graphdef.branches import Branch, branches
from pesto_cli.graphdef.fetches import fetch_names, node_name
from pesto_cli.graphdef.frames import outermost_frames
from pesto_cli.graphdef.nodes import Node, NodeTable, node_table, topological_order
from pesto_cli.graphdef.signature import OpDefs, Signature


@dataclass(frozen=True, eq=False)
class Wiring:
    """The nodes that the fetches of a MetaGraphDef need.

    table: all nodes of the graph.
    order: node indices in topological order.
    """

    table: NodeTable
    nodes: Sequence[Node]
    order: Sequence[int]
    op_defs: OpDefs

    @cached_property
    def frames(self) -> Sequence[str | None]:
        """`[num_nodes]`: the frame of the outermost while loop around each node, or None."""
        return outermost_frames(self.nodes, self.order)

    @cached_property
    def branches(self) -> Sequence[frozenset[Branch]]:
        """`[num_nodes]`: the branches that must be taken for each node to run."""
        in_frame = {index for index, frame in enumerate(self.frames) if frame is not None}
        return branches(self.nodes, self.order, in_frame)

    def signature(self, index: int) -> Signature:
        """Return the input and output tensors of a node."""
        return self.op_defs.signature(self.nodes[index].proto)

    def before(self, marks: Mapping[int, int]) -> list[int]:
        """`[num_nodes]`: the bitwise or of the marks of all predecessors, direct or not.

        marks: node index -> bits that mark the node.
        """
        found = [0] * len(self.nodes)
        for index in self.order:
            for source in self.nodes[index].sources:
                found[index] |= found[source] | marks.get(source, 0)
        return found


def wiring(meta: Any) -> Wiring:
    """Return the wiring of a MetaGraphDef's step."""
    table = node_table(meta.graph_def)
    nodes = table.needed(map(node_name, fetch_names(meta)))
    return Wiring(table, nodes, topological_order(nodes), OpDefs(meta.graph_def.library))


def marks(indices: Sequence[int]) -> dict[int, int]:
    """Return a different bit for each of these nodes: {node index: bit}."""
    return {index: 1 << place for place, index in enumerate(dict.fromkeys(indices))}
