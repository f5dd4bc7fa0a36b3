"""The order of a placement as control inputs of nodes."""

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


def control_inputs(meta: Any, step: StepGraph, placement: Placement) -> dict[str, list[str]]:
    """The nodes that each node must wait for, by name, beyond what the graph demands.

    Each device runs its ops one after the other, by rank, save for those outside the `Line`.

    Raises:
        BadInputError: the order contradicts the graph.
    """
    nodes, line = step.wiring.nodes, line_of(meta, step)
    edges = order_edges(
        step.graph,
        placement,
        waits=line.waits,
        awaited=line.awaited,
        enforced=_enforced(step),
        branch=line.branch,
    )
    added: dict[str, list[str]] = defaultdict(list)
    for before, after in edges.tolist():
        for node in first_nodes(nodes, step.members[after]):
            added[node] += last_nodes(nodes, step.members[before])
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
    waits = _with_any(step, lambda _: True) & ~_free(step, meta)
    needed = _branches(step)
    number = {branch: index for index, branch in enumerate(dict.fromkeys([frozenset(), *needed]))}
    of_op = np.array([number[branch] for branch in needed], dtype=np.int64)
    return Line(waits, waits & (of_op == 0), np.where(waits & ~_is_loop(step), of_op, 0))


def _with_any(step: StepGraph, fits: Callable[[Node], bool]) -> BoolArray:
    """`[num_ops]`: whether one of an op's nodes fits."""
    fitting = [fits(node) for node in step.wiring.nodes]
    return np.array([any(fitting[index] for index in row) for row in step.members], dtype=bool)


def _is_loop(step: StepGraph) -> BoolArray:
    return _with_any(step, lambda node: node.type in ENTER)


def _free(step: StepGraph, meta: Any) -> BoolArray:
    """`[num_ops]`: feeds, handles of state, and what is run without the rest of the step."""
    alone, op_defs = run_alone(meta, step.wiring.table), step.wiring.op_defs
    # With a default, it is no op either where it is fed.
    fed = FEED_TYPES | {"PlaceholderWithDefault"}

    def is_handle(node: Node) -> bool:
        outputs = op_defs.signature(node.proto).outputs
        refers = any(output.is_ref or output.dtype == DT_RESOURCE for output in outputs)
        return refers and not node.inputs

    return _with_any(step, lambda node: node.type in fed or node.name in alone or is_handle(node))


def _branches(step: StepGraph) -> list[frozenset[Branch]]:
    """`[num_ops]`: the branches that must be taken for all of an op to run."""
    needed = step.wiring.branches
    return [frozenset[Branch]().union(*(needed[index] for index in row)) for row in step.members]


def _enforced(step: StepGraph) -> BoolArray:
    """`[num_edges]`: whether the first op always ends before any of the second starts.

    A loop starts on the first of its inputs, and gives its first result before its end; a Merge
    waits for one of its inputs.
    """
    is_loop, is_merge = _is_loop(step), _with_any(step, lambda node: node.type in MERGE)
    before, after = step.graph.edges.T
    enforced: BoolArray = ~(is_loop[before] | is_loop[after] | is_merge[after])
    return enforced
