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
from pesto_cli.sharding.layouts import Partial
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
    """
    decided = decisions(plan, graph, specs)
    choices, is_local = dict(plan.choices), [False] * graph.num_ops
    for op in reversed(graph.topological_order.tolist()):
        if not all(is_local[each] for each in graph.successors[op].tolist()):
            continue
        if graph.types[op] == JOIN.type or _is_update(graph, decided, op):
            is_local[op] = True
        elif graph.names[op] in chosen.choices:
            continue
        elif len(graph.successors[op]) and _can_be_replicated(specs[op]):
            is_after = graph.labels.phase[op] == Phase.UPDATE
            if is_after or op not in decided or not _has_less_to_send(decided[op]):
                is_local[op] = True
                choices[graph.names[op]] = Choice(REPLICATED_NAME, (1,) * num_parts)
    return replace(plan, choices=choices)


def _is_update(graph: OpGraph, decided: Mapping[int, Decision], op: int) -> bool:
    is_mirrored = op in decided and decided[op].alternative.name == MIRRORED
    return is_mirrored and not graph.tensors_of(op)


def _has_less_to_send(decision: Decision) -> bool:
    """Return whether an op is split, or adds several partial tensors."""
    alternative = decision.alternative
    num_terms = sum(isinstance(layout, Partial) for layout in alternative.inputs)
    return alternative.size is not None or num_terms > 1


def _can_be_replicated(spec: OpSpec | None) -> bool:
    return spec is not None and any(each.name == REPLICATED_NAME for each in alternatives(spec))
