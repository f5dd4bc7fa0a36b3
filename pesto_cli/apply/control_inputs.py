"""The order of a placement as control inputs of nodes."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.apply.entry_points import run_alone
from pesto_cli.apply.loops import first_nodes, last_nodes
from pesto_cli.apply.order import order_edges
from pesto_cli.data.graph import FEED_TYPES, BoolArray, IntArray
from pesto_cli.data.schedule import Placement
from pesto_cli.graphdef.branches import Branch, branches
from pesto_cli.graphdef.devices import DT_RESOURCE
from pesto_cli.graphdef.frames import ENTER
from pesto_cli.graphdef.nodes import MERGE, Node, needed_nodes
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.graphdef.signature import OpDefs


def control_inputs(meta: Any, step: StepGraph, placement: Placement) -> dict[str, list[str]]:
    """The nodes that each node must wait for, by name, beyond what the graph demands.

    Each device runs its ops one after the other, by rank, save for those outside the `Line`.

    Raises:
        BadInputError: the order contradicts the graph.
    """
    ops = _ops(meta, step)
    line = _line(meta, ops)
    edges = order_edges(
        step.graph,
        placement,
        waits=line.waits,
        awaited=line.awaited,
        enforced=_enforced(ops, step.graph.edges),
        branch=line.branch,
    )
    added: dict[str, list[str]] = defaultdict(list)
    for before, after in edges.tolist():
        for node in first_nodes(ops.nodes, ops.members[after]):
            added[node] += last_nodes(ops.nodes, ops.members[before])
    return dict(added)


@dataclass(frozen=True, eq=False)
class Line:
    """Which ops stand in the line of their device.

    waits: `[num_ops]`, whether the order may hold an op back. Not feeds and returns of fetches;
        nor handles of variables, and whatever else is also run alone, to initialise, save or read
        a variable.
    awaited: `[num_ops]`, whether later ops may be made to wait for it. Not what is in one branch
        of a conditional: what waits for a node that is skipped is skipped too.
    branch: `[num_ops]`, a number from 1 on for ops that run in the same steps, as they need the
        same branches: these may be made to wait for each other. 0 for all others.
    """

    waits: BoolArray
    awaited: BoolArray
    branch: IntArray


def line_of(meta: Any, step: StepGraph) -> Line:
    """Which ops of a step take part in the order of their devices."""
    return _line(meta, _ops(meta, step))


def _line(meta: Any, ops: "_Ops") -> Line:
    waits = ops.with_any(lambda _: True) & ~_free(ops, meta)
    needed = _branches(ops)
    number = {branch: index for index, branch in enumerate(dict.fromkeys([frozenset(), *needed]))}
    of_op = np.array([number[branch] for branch in needed], dtype=np.int64)
    return Line(waits, waits & (of_op == 0), np.where(waits & ~ops.is_loop, of_op, 0))


@dataclass(frozen=True)
class _Ops:
    """The nodes of a step; members: the indices of those that each op stands for, `[num_ops]`."""

    nodes: Sequence[Node]
    members: Sequence[Sequence[int]]

    def with_any(self, fits: Callable[[Node], bool]) -> BoolArray:
        """`[num_ops]`: whether one of the op's nodes fits."""
        return np.array([any(fits(self.nodes[i]) for i in row) for row in self.members], dtype=bool)

    @property
    def is_loop(self) -> BoolArray:
        return self.with_any(lambda node: node.type in ENTER)


def _ops(meta: Any, step: StepGraph) -> _Ops:
    nodes = needed_nodes(meta.graph_def, (name for names in step.nodes for name in names))
    index_of = {node.name: index for index, node in enumerate(nodes)}
    return _Ops(nodes, [[index_of[name] for name in names] for names in step.nodes])


def _free(ops: _Ops, meta: Any) -> BoolArray:
    """`[num_ops]`: feeds, handles of state, and what is run without the rest of the step."""
    alone, op_defs = run_alone(meta), OpDefs(meta.graph_def.library)
    # With a default, it is no op either where it is fed.
    fed = FEED_TYPES | {"PlaceholderWithDefault"}

    def is_handle(node: Node) -> bool:
        outputs = op_defs.signature(node.proto).outputs
        refers = any(output.is_ref or output.dtype == DT_RESOURCE for output in outputs)
        return refers and not node.inputs

    return ops.with_any(lambda node: node.type in fed or node.name in alone or is_handle(node))


def _branches(ops: _Ops) -> list[frozenset[Branch]]:
    """`[num_ops]`: the branches that must be taken for all of an op to run."""
    in_loops = {index for op in np.flatnonzero(ops.is_loop).tolist() for index in ops.members[op]}
    needed = branches(ops.nodes, in_loops)
    return [frozenset[Branch]().union(*(needed[index] for index in row)) for row in ops.members]


def _enforced(ops: _Ops, edges: IntArray) -> BoolArray:
    """`[num_edges]`: whether the first op always ends before any of the second starts.

    A loop starts on the first of its inputs, and gives its first result before its end; a Merge
    waits for one of its inputs.
    """
    is_loop, is_merge = ops.is_loop, ops.with_any(lambda node: node.type in MERGE)
    before, after = edges[:, 0], edges[:, 1]
    enforced: BoolArray = ~(is_loop[before] | is_loop[after] | is_merge[after])
    return enforced
