"""The order of a placement as control inputs of nodes."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pesto_cli.apply.branches import skippable
from pesto_cli.apply.entry_points import run_alone
from pesto_cli.apply.order import order_edges
from pesto_cli.graph import FEED_TYPES, BoolArray
from pesto_cli.graphdef.devices import DT_RESOURCE
from pesto_cli.graphdef.frames import ENTER, EXIT
from pesto_cli.graphdef.nodes import MERGE, Node, needed_nodes
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.graphdef.signature import OpDefs
from pesto_cli.schedule import Placement

# Where it is fed, the last one is no op either.
_FED = FEED_TYPES | {"PlaceholderWithDefault"}


def control_inputs(meta: Any, step: StepGraph, placement: Placement) -> dict[str, list[str]]:
    """The nodes that each node must wait for, by name, beyond what the graph demands.

    Each device runs its ops one after the other, by rank, except that

    - feeds and returns of fetches take no part; nor do handles of variables, and whatever else is
      run alone to initialise, save or read a variable;
    - an op in one branch of a conditional waits for those before it, but none waits for it: what
      waits for a node that is skipped is skipped too.

    Raises:
        BadInputError: the order contradicts the graph.
    """
    nodes = needed_nodes(meta.graph_def, (name for names in step.nodes for name in names))
    index_of = {node.name: index for index, node in enumerate(nodes)}
    members = [[index_of[name] for name in names] for names in step.nodes]

    def ops_with(fits: Callable[[Node], bool]) -> BoolArray:
        return np.array([any(fits(nodes[index]) for index in row) for row in members])

    is_loop = ops_with(lambda node: node.type in ENTER)
    is_merge = ops_with(lambda node: node.type in MERGE) & ~is_loop
    alone = run_alone(meta)
    op_defs = OpDefs(meta.graph_def.library)
    is_free = ops_with(
        lambda node: node.type in _FED or node.name in alone or _is_handle(node, op_defs)
    )
    in_loops = {index for op in np.flatnonzero(is_loop) for index in members[op]}
    skipped = {nodes[index].name for index in skippable(nodes, in_loops)}
    waits = ops_with(lambda _: True) & ~is_free
    before, after = step.graph.edges.T
    edges = order_edges(
        step.graph,
        placement,
        waits=waits,
        awaited=waits & ~ops_with(lambda node: node.name in skipped),
        # A loop starts on the first of its inputs, and its first result comes before its end. A
        # Merge waits for one of its inputs.
        enforced=~(is_loop[before] | is_loop[after] | is_merge[after]),
    )
    added: dict[str, list[str]] = defaultdict(list)
    for first, second in edges.tolist():
        ends = [nodes[index].name for index in _ends(nodes, members[first])]
        for index in _starts(nodes, members[second]):
            added[nodes[index].name] += ends
    return dict(added)


def _is_handle(node: Node, op_defs: OpDefs) -> bool:
    """Whether a node only refers to a variable, table or other state, so that all may need it."""
    outputs = op_defs.signature(node.proto).outputs
    refers = any(output.is_ref or output.dtype == DT_RESOURCE for output in outputs)
    return refers and not node.inputs


def _starts(nodes: Sequence[Node], members: Sequence[int]) -> list[int]:
    """The nodes that must wait for the op to wait: of a loop, where its data enters from outside.

    Any other control edge into a loop, or out of it, TensorFlow refuses.
    """
    own = set(members)
    return [
        index
        for index in members
        if len(members) == 1
        or (nodes[index].type in ENTER and own.isdisjoint(nodes[index].sources))
    ]


def _ends(nodes: Sequence[Node], members: Sequence[int]) -> list[int]:
    """The nodes that have ended when the op has: of a loop, those by which its data leaves it."""
    within = {source for index in members for source in nodes[index].sources}
    return [
        index
        for index in members
        if len(members) == 1 or (nodes[index].type in EXIT and index not in within)
    ]
