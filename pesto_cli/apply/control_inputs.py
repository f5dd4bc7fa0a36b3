"""Express the execution order of a placement as control inputs of nodes."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.apply.entry_points import run_alone
from pesto_cli.apply.loops import first_nodes, last_nodes
from pesto_cli.apply.order import order_edges
from pesto_cli.data.graph import BoolArray, IntArray
from pesto_cli.data.schedule import Placement
from pesto_cli.files.tensorflow_names import FEED_TYPES
from pesto_cli.graphdef.branches import Branch
from pesto_cli.graphdef.devices import DT_RESOURCE
from pesto_cli.graphdef.frames import ENTER
from pesto_cli.graphdef.nodes import MERGE, Node
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.graphdef.signature import OpDefs


@dataclass(frozen=True, eq=False)
class OrderedOps:
    """The ops that are subject to the order constraints of their device.

    waits: `[num_ops]`, whether the op may have to wait for earlier ops of its device. False for
        feeds, returns of fetches, handles of variables, and for ops that also run without the step,
        to initialise, save or read a variable.
    awaited: `[num_ops]`, whether later ops of the device may have to wait for the op. False also
        for an op in a branch of a conditional: a node that waits for a skipped node is skipped,
        too.
    branch: `[num_ops]`, a number from 1 on, equal for ops that need the same branches, and so run
        in the same steps: they may have to wait for each other. 0 for all other ops.
    """

    waits: BoolArray
    awaited: BoolArray
    branch: IntArray


def ordered_ops(meta: Any, step: StepGraph) -> OrderedOps:
    """Return the ops of a step that are subject to the order constraints of their devices."""
    waits = _with_any(step, lambda _: True) & ~_free(step, meta)
    needed = _branches(step)
    number = {branch: index for index, branch in enumerate(dict.fromkeys([frozenset(), *needed]))}
    of_op = np.array([number[branch] for branch in needed], dtype=np.int64)
    return OrderedOps(waits, waits & (of_op == 0), np.where(waits & ~_is_loop(step), of_op, 0))


def control_inputs(
    step: StepGraph, placement: Placement, ordered: OrderedOps
) -> dict[str, list[str]]:
    """Return the control inputs to add to each node: node name -> names of nodes to wait for.

    With them, each device runs its ops one after the other, by rank. The exceptions are ops that
    are not subject to order constraints, see `OrderedOps`.

    Raises:
        BadInputError: the order contradicts the graph.
    """
    nodes = step.wiring.nodes
    edges = order_edges(
        step.graph,
        placement,
        waits=ordered.waits,
        awaited=ordered.awaited,
        enforced=_enforced(step),
        branch=ordered.branch,
    )
    added: dict[str, list[str]] = defaultdict(list)
    for before, after in edges.tolist():
        for node in first_nodes(nodes, step.members[after]):
            added[node] += last_nodes(nodes, step.members[before])
    return dict(added)


def _with_any(step: StepGraph, fits: Callable[[Node], bool]) -> BoolArray:
    """`[num_ops]`: whether `fits` is true for one of an op's nodes."""
    fitting = [fits(node) for node in step.wiring.nodes]
    return np.array([any(fitting[index] for index in row) for row in step.members], dtype=bool)


def _is_loop(step: StepGraph) -> BoolArray:
    return _with_any(step, lambda node: node.type in ENTER)


def _free(step: StepGraph, meta: Any) -> BoolArray:
    """`[num_ops]`: whether the op is a feed or a handle, or also runs without the step."""
    alone, op_defs = run_alone(meta, step.wiring.table), step.wiring.op_defs
    # A placeholder with default is not executed either if it is fed.
    fed = FEED_TYPES | {"PlaceholderWithDefault"}

    return _with_any(
        step, lambda node: node.type in fed or node.name in alone or is_handle(node, op_defs)
    )


def is_handle(node: Node, op_defs: OpDefs) -> bool:
    """Return whether a node only refers to a state: a variable, an iterator, a queue, a table."""
    outputs = op_defs.signature(node.proto).outputs
    refers = any(output.is_ref or output.dtype == DT_RESOURCE for output in outputs)
    return refers and not node.inputs


def _branches(step: StepGraph) -> list[frozenset[Branch]]:
    """`[num_ops]`: the branches that must be taken for all nodes of an op to run."""
    needed = step.wiring.branches
    return [frozenset[Branch]().union(*(needed[index] for index in row)) for row in step.members]


def _enforced(step: StepGraph) -> BoolArray:
    """`[num_edges]`: whether the first op always ends before any node of the second one starts.

    It need not end before if one of them is a loop, or the second is a Merge: a loop starts when
    its first input is ready, it outputs its first result before it ends, and a Merge waits for only
    one of its inputs.
    """
    is_loop, is_merge = _is_loop(step), _with_any(step, lambda node: node.type in MERGE)
    before, after = step.graph.edges.T
    enforced: BoolArray = ~(is_loop[before] | is_loop[after] | is_merge[after])
    return enforced
