"""Map a placement that splits ops to another graph: its plan by op names, then its placed ops.

An op keeps its parts if it is unchanged (same name, type and inputs), if it can still be split in
this way, and if the profile prices the parts. Parts that compute something else than the whole op
are kept only if the user allows this again. An op that takes partial tensors also needs their
producers to be split as before, and a variable needs all ops that take its handle. All other ops
are whole in the start.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from pesto_cli.data.plan import WHOLE_OPS, Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.data.split_start import SplitStart
from pesto_cli.diff import MappedSplit, unchanged_choices
from pesto_cli.errors import PestoError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import PlacementFile
from pesto_cli.sharding.decisions import Decision, decisions
from pesto_cli.sharding.layouts import Own, Partial, Whole
from pesto_cli.sharding.problems import Rewritten, prices_of, rewritten
from pesto_cli.sharding.rules.variables import is_variable
from pesto_cli.sharding.variables import variable_decisions
from pesto_cli.strategies.placement_mapping import start_from


def split_start(placed: PlacementFile, problem: Problem) -> MappedSplit | None:
    """Map a placement and its plan to a problem; None if no op of the problem can start split.

    What the user's constraints split is split so, whatever the placement says.
    """
    if not placed.plan or problem.parts is None:
        return None
    split = _split(placed, problem)
    if split is None:
        return None
    bare = replace(placed, plan=WHOLE_OPS, parts=None)  # its ops are those of the split graph
    mapped = start_from(bare, Simulator(split.problem))
    num_kept = len(placed.plan.choices.keys() & split.plan.choices.keys())
    start = SplitStart(split.plan, mapped.placement)
    return MappedSplit(start, mapped, num_kept, split.problem)


def _split(placed: PlacementFile, problem: Problem) -> Rewritten | None:
    try:
        kept = kept_choices(placed, problem)
        plan = Plan({**kept, **problem.chosen.choices}, placed.plan.hosts)
        return rewritten(problem, plan) if kept else None
    except PestoError:
        return None  # the plan as a whole does not fit any more


def kept_choices(placed: PlacementFile, problem: Problem) -> dict[str, Choice]:
    """Return the choices of a placement's plan that can be kept for a problem, by op name."""
    graph, parts = problem.graph, prices_of(problem)
    specs = [parts.spec(op) for op in range(problem.num_ops)]
    decided: dict[int, Decision] = {}
    for name, choice in unchanged_choices(placed, graph).items():
        with suppress(PestoError):  # it cannot be split so any more, or is not priced
            found = decisions(Plan({name: choice}), graph, specs)
            if any(each.alternative.local not in (None, *problem.local) for each in found.values()):
                continue  # it computes something else, which this search may not do
            for op, decision in found.items():
                for size in choice.sizes:
                    share = size / (decision.alternative.size or size)
                    parts.part_ratio(op, choice.alternative, share)
            decided |= found
    kept = fitting(problem, specs, decided)
    return {graph.names[op]: placed.plan.choices[graph.names[op]] for op in kept}


def fitting(
    problem: Problem, specs: Sequence[OpSpec | None], decided: Mapping[int, Decision]
) -> Mapping[int, Decision]:
    """Return as many decisions as fit each other: {op index: decision}.

    An op that takes partial tensors or values of its own fits the decisions of their producers, and
    a variable those of all ops that take its handle.
    """
    kept = _fitting(problem, specs, decided)
    while len(kept) < len(decided):
        kept, decided = _fitting(problem, specs, kept), kept
    return kept


def _fitting(
    problem: Problem, specs: Sequence[OpSpec | None], decided: Mapping[int, Decision]
) -> dict[int, Decision]:
    graph, kept = problem.graph, dict[int, Decision]()
    for op in graph.topological_order.tolist():
        if op in decided and _has_its_producers(problem, op, decided[op], kept):
            kept[op] = decided[op]
    for op, decision in list(kept.items()):
        if is_variable(decision.spec):
            name, sizes = decision.alternative.name, decision.sizes
            needed = variable_decisions(graph, specs, op, name, sizes)
            if needed is None or not _are_in(needed, kept):
                del kept[op]
        elif not _takers_have_their_own(problem, op, decision, kept):
            del kept[op]
    return kept


def _takers_have_their_own(
    problem: Problem, op: int, decision: Decision, kept: Mapping[int, Decision]
) -> bool:
    """Whether each op that takes values of which each part has its own is split alike."""
    graph = problem.graph
    takers = {
        taker
        for tensor, layout in zip(graph.tensors_of(op), decision.alternative.outputs, strict=True)
        if isinstance(layout, Own)
        for taker in graph.consumers_of(tensor).tolist()
    }
    return all(taker in kept for taker in takers)


def _are_in(needed: Mapping[int, Decision], kept: Mapping[int, Decision]) -> bool:
    return all(
        op in kept
        and (kept[op].alternative.name, kept[op].sizes) == (each.alternative.name, each.sizes)
        for op, each in needed.items()
    )


def _has_its_producers(
    problem: Problem, op: int, decision: Decision, kept: Mapping[int, Decision]
) -> bool:
    """Whether each partial tensor and each piece of a variable that an op takes is still there."""
    graph = problem.graph
    row = [] if graph.inputs is None else graph.inputs[op].tolist()
    operands, layouts = decision.spec.inputs, decision.alternative.inputs
    for tensor, operand, layout in zip(row, operands, layouts, strict=True):
        is_piece = operand.is_handle and not isinstance(layout, Whole)
        if not (is_piece or isinstance(layout, Partial | Own)):
            continue
        producer = int(graph.tensor_producer[tensor]) if tensor >= 0 else -1
        before = kept.get(producer)
        if before is None or len(before.sizes) != len(decision.sizes):
            return False
        output = graph.tensors_of(producer).index(tensor)
        if before.alternative.outputs[output] != layout:
            return False
    return True
