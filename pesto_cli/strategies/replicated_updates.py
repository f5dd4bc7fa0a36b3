"""Replicate the ops whose results are needed only by updates of mirrored variables.

Each device has the sums of all gradients then. If ops between the gradients and the updates, such
as those that clip by a global norm, stayed whole or took open sums, gradients would be added twice:
once for the norm, and once for the updates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Phase
from pesto_cli.data.plan import MIRRORED, REPLICATED_NAME, WHOLE_OPS, Choice, Plan
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.added_ops import JOIN
from pesto_cli.sharding.decisions import Decision, decisions
from pesto_cli.sharding.layouts import Partial, Replicated, Whole
from pesto_cli.sharding.rules import alternatives


def with_replicated_updates(
    plan: Plan,
    graph: OpGraph,
    specs: Sequence[OpSpec | None],
    num_parts: int,
    chosen: Plan = WHOLE_OPS,
) -> Plan:
    """Return a plan in which ops that only mirrored updates need are replicated.

    An op of the forward or the backward pass keeps its choice if the plan splits the op, or if the
    op adds several partial gradients. A recurrent layer has one partial gradient for each step of
    time: devices then exchange the sum, and not each term. Ops of `chosen` keep their choices.

    A split op is still replicated if each device has all that it takes, as the changes of moving
    averages. Otherwise its parts would be exchanged, which takes longer than such an op.
    """
    decided = decisions(plan, graph, specs)
    choices, is_local = dict(plan.choices), [False] * graph.num_ops
    has_inputs = _with_inputs_everywhere(graph, specs, decided)
    for op in reversed(graph.topological_order.tolist()):
        if not all(is_local[each] for each in graph.successors[op].tolist()):
            continue
        if graph.types[op] == JOIN.type or _is_update(graph, decided, op):
            is_local[op] = True
        elif graph.names[op] in chosen.choices:
            continue
        elif len(graph.successors[op]) and _can_be_replicated(specs[op]):
            is_after = graph.labels.phase[op] == Phase.UPDATE
            if is_after or op in has_inputs or not _has_less_to_send(decided.get(op)):
                is_local[op] = True
                choices[graph.names[op]] = Choice(REPLICATED_NAME, (1,) * num_parts)
    return replace(plan, choices=choices)


def _is_update(graph: OpGraph, decided: Mapping[int, Decision], op: int) -> bool:
    is_mirrored = op in decided and decided[op].alternative.name == MIRRORED
    return is_mirrored and not graph.tensors_of(op)


def _with_inputs_everywhere(
    graph: OpGraph, specs: Sequence[OpSpec | None], decided: Mapping[int, Decision]
) -> set[int]:
    """Return the split ops that can be replicated without sending anything more.

    Each device has the tensors that they take, or computes them by such an op.
    """
    found, everywhere = set[int](), set[int]()
    if graph.inputs is None:
        return found
    rows = list(graph.inputs.rows())
    for op in graph.topological_order.tolist():
        if (decision := decided.get(op)) is None:
            continue
        taken = zip(decision.alternative.inputs, rows[op], strict=True)
        if _can_be_replicated(specs[op]) and all(
            isinstance(layout, Whole | Replicated) or tensor in everywhere
            for layout, tensor in taken
        ):
            found.add(op)
        for tensor, layout in zip(graph.tensors_of(op), decision.alternative.outputs, strict=True):
            if op in found or isinstance(layout, Replicated):
                everywhere.add(tensor)
    return found


def _has_less_to_send(decision: Decision | None) -> bool:
    """Return whether an op is split, or adds several partial tensors."""
    if decision is None:
        return False
    alternative = decision.alternative
    num_terms = sum(isinstance(layout, Partial) for layout in alternative.inputs)
    return alternative.size is not None or num_terms > 1


def _can_be_replicated(spec: OpSpec | None) -> bool:
    return spec is not None and any(each.name == REPLICATED_NAME for each in alternatives(spec))
