"""Replicate the ops whose results are needed only by updates of mirrored variables.

Each device has the sums of all gradients then. If ops between the gradients and the updates, such
as those that clip by a global norm, stayed whole or took open sums, gradients would be added twice:
once for the norm, and once for the updates.
"""

from collections.abc import Container, Mapping, Sequence

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Phase
from pesto_cli.data.plan import MIRRORED, REPLICATED_NAME, Choice
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.added_ops import JOIN
from pesto_cli.sharding.decisions import Decision, decision_of
from pesto_cli.sharding.layouts import Partial, Replicated, Whole


def with_replicated_updates(
    decided: Mapping[int, Decision],
    graph: OpGraph,
    specs: Sequence[OpSpec | None],
    num_parts: int,
    chosen: Container[int] = (),
) -> dict[int, Decision]:
    """Return decisions by which ops that only mirrored updates need are replicated.

    An op of the forward or the backward pass keeps its decision if it is split, or if it adds
    several partial gradients. A recurrent layer has one partial gradient for each step of time:
    devices then exchange the sum, and not each term. Ops of `chosen` keep their decisions.

    A split op is still replicated if each device has all that it takes, as the changes of moving
    averages. Otherwise its parts would be exchanged, which takes longer than such an op.
    """
    found, is_local = dict(decided), [False] * graph.num_ops
    copies = Choice(REPLICATED_NAME, (1,) * num_parts)
    replicated = [None if spec is None else decision_of(spec, copies) for spec in specs]
    has_inputs = _with_inputs_everywhere(graph, replicated, decided)
    for op in reversed(graph.topological_order.tolist()):
        if not all(is_local[each] for each in graph.successors[op].tolist()):
            continue
        if graph.types[op] == JOIN.type or _is_update(graph, decided, op):
            is_local[op] = True
        elif op in chosen:
            continue
        elif len(graph.successors[op]) and (decision := replicated[op]) is not None:
            is_after = graph.labels.phase[op] == Phase.UPDATE
            if is_after or op in has_inputs or not _has_less_to_send(decided.get(op)):
                is_local[op] = True
                found[op] = decision
    return found


def _is_update(graph: OpGraph, decided: Mapping[int, Decision], op: int) -> bool:
    is_mirrored = op in decided and decided[op].alternative.name == MIRRORED
    return is_mirrored and not graph.tensors_of(op)


def _with_inputs_everywhere(
    graph: OpGraph, replicated: Sequence[Decision | None], decided: Mapping[int, Decision]
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
        if replicated[op] is not None and all(
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
