"""Add a step with split ops to a tf.Graph, and run it in place of the step that was built.

Operations cannot be removed from a tf.Graph, and other runs (an evaluation with another batch size)
need the whole ops. So the operations that the program has built stay as they are, and a copy of the
step is added: parts, conversions, and the ops that stay whole. The copy uses the feeds and the
state of the original: variables, iterators, queues, tables. Only variables that are split or
mirrored have pieces of their own (`variable_pieces`).

A run of the step computes the copy. What it fetches besides, such as a summary of the loss, is
copied too if it depends on the step. So each op runs once, on values of the same step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pesto_cli.apply.control_inputs import is_handle
from pesto_cli.apply.edits import Changes, Order, changes_of_step
from pesto_cli.apply.live.copies import Copies, add_copies, add_nodes, downstream
from pesto_cli.apply.live.variable_pieces import VariablePieces
from pesto_cli.apply.placed import with_changes
from pesto_cli.apply.same_step import Difference, find_step
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.fetches import FED_TYPES
from pesto_cli.graphdef.nodes import Node, needed_nodes
from pesto_cli.graphdef.programs.session_runs import SessionRun, needed_operations
from pesto_cli.graphdef.signature import OpDefs

SCOPE = "split_step"
DEPENDENT_SCOPE = "of_split_step"

Shapes = Mapping[str, tuple[int, ...]]
"""Name of a fed operation -> shape of its feed."""


@dataclass(frozen=True, eq=False)
class SplitStep:
    """The copy of a step in a tf.Graph, with split ops.

    changes: the split graph, with its devices and control inputs.
    split: names of the operations that are split, which therefore cannot be fed.
    shapes: shapes of the step's feeds; parts have fixed sizes.
    copies: what stands for the operations of the step, other than feeds and handles.
    scope: the beginning of the names of the copy's operations.
    variables: the variables that are split or mirrored.
    """

    changes: Changes
    split: frozenset[str]
    shapes: Shapes
    copies: Copies
    scope: str
    variables: VariablePieces
    _extended: dict[frozenset[Any], Copies] = field(default_factory=dict)

    def instead_of(self, run: SessionRun) -> Copies | str:
        """Return what stands for the operations of a run; add what is missing to the graph.

        A text if the run has to run the whole ops, because it feeds other sizes or tensors than the
        copy takes, or takes a variable that is split: it says what the run does.
        """
        given = fed_shapes(run)
        unlike = (
            f"was fed {shown_shapes(given)}, but the parts of split ops take "
            f"{shown_shapes(self.shapes)}"
        )
        if any(given.get(name, shape) != shape for name, shape in self.shapes.items()):
            return unlike
        needed = needed_operations(run)
        copies = self._extended_to(needed, frozenset(run.feeds), run.graph)
        executed = needed_operations(copies.instead_of(run))
        unfed = any(op.type in FED_TYPES for name, op in executed.items() if name not in needed)
        # If a tensor is not fed that was fed before, its original computes it.
        twice = any(op.op_def.is_stateful for name, op in executed.items() if name in copies.copies)
        if unfed or self.split & given.keys() or (twice and given.keys() != self.shapes.keys()):
            return unlike
        if twice:
            return "fetches what cannot be computed from the parts"
        taken = self.variables.taken_whole(executed, self.scope)
        return copies if taken is None else f"takes the whole value of {taken}"

    def _extended_to(self, needed: Mapping[str, Any], feeds: frozenset[Any], graph: Any) -> Copies:
        """Return copies of all of some operations that depend on the step."""
        known = self._extended.get(feeds, self.copies)
        reads = self.variables.add_reads(needed, known)
        known = Copies({**known.copies, **{name: read.value for name, read in reads.items()}})
        copied = needed.keys() & (self.copies.copies.keys() | reads.keys())
        computed = [name for name in copied if needed[name].type != "Const"]
        dependent = downstream(needed, computed)
        operations = [needed[name] for name in sorted(dependent - known.copies.keys())]
        added = add_copies(graph, operations, DEPENDENT_SCOPE, known)
        extended = Copies({**known.copies, **added})
        for name, read in reads.items():
            sources = needed[name].control_inputs
            waits_for = [extended.copies.get(source.name, source) for source in sources]
            for part in read.parts:
                part._add_control_inputs(waits_for)
        self._extended[feeds] = extended
        return extended

    def name_as_planned(self, traced: Any) -> None:
        """Give the nodes in a RunMetadata the names that they have in the split graph, in place."""
        for device in traced.step_stats.dev_stats:
            for run in device.node_stats:
                run.node_name = run.node_name.removeprefix(self.scope)


def fed_shapes(run: SessionRun) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the feeds of a run, by the name of the operation."""
    return {ref.deref().op.name: np.shape(value) for ref, value in run.feeds.items()}


def shown_shapes(shapes: Shapes) -> str:
    """Return the shapes of feeds as text for a message."""
    listed = (f"{name} [{', '.join(map(str, shape))}]" for name, shape in sorted(shapes.items()))
    return ", ".join(listed) or "nothing"


def add_split_step(
    run: SessionRun,
    placement: PlacementFile,
    *,
    order: Order,
    devices: Mapping[str, str] | None,
    what: str,
) -> SplitStep:
    """Add a copy of the placement's step, with split ops, to the graph of a run of the step.

    what: names the program in errors.

    Raises BadInputError if the run feeds the step with other sizes than those of the placement, or
    the placement does not fit, as `planned_changes` does.
    """
    graph, shapes = run.graph, fed_shapes(run)
    found = find_step(graph, placement, what, shapes)
    if isinstance(found, Difference):
        raise BadInputError(
            f"{what}: the step is fed {shown_shapes(shapes)}, but the placement splits ops of other"
            f" sizes ({found}); the sizes with which the graph was captured were expected: run the"
            " script with these, or capture it again."
        )
    changes = changes_of_step(
        found.meta, found.step, placement, order=order, devices=devices, what=what
    )
    graph_def = with_changes(found.meta, changes).graph_def
    pieces = {name for variable in changes.variables for name in variable.names}
    gone = {variable.name for variable in changes.variables} - pieces
    originals = {node.name for node in found.step.wiring.nodes} - gone
    nodes, op_defs = needed_nodes(graph_def, originals), OpDefs(graph_def.library)
    shared = {
        node.name
        for node in nodes
        if node.name in originals and (node.type in FED_TYPES or is_handle(node, op_defs))
    }
    added = _import(graph, graph_def, nodes, shared)
    name, operation = next(iter(added.items()))
    return SplitStep(
        changes,
        frozenset(placement.plan.choices),
        {name: shape for name, shape in shapes.items() if name in shared},
        Copies({name: added[name] for name in originals - shared}),
        operation.name.removesuffix(name),
        VariablePieces(graph, changes.variables, added),
    )


def _import(graph: Any, graph_def: Any, nodes: list[Node], shared: set[str]) -> dict[str, Any]:
    """Add nodes of a GraphDef to a tf.Graph; return the operations by the name of the node.

    shared: nodes in place of which the operation of the same name is used.
    """
    given = {}
    new = [node for node in nodes if node.name not in shared]
    for node in new:
        for source, output in node.inputs:
            name = nodes[source].name
            if name in shared:
                given[f"{name}:{output}"] = graph.get_operation_by_name(name).outputs[output]
        for source in node.controls:
            name = nodes[source].name
            if name in shared:
                given[f"^{name}"] = graph.get_operation_by_name(name).outputs[0]
    # The library has the functions of parts.
    return add_nodes(graph, [node.proto for node in new], given, SCOPE, graph_def.library)
