"""Map a placement that splits ops to another graph: its plan by op names, then its placed ops.

An op keeps its parts if it is unchanged (same name, type and inputs), if it can still be split in
this way, and if the profile prices the parts. Parts that compute something else than the whole op
are kept only if the user allows this again. An op that takes partial tensors also needs their
producers to be split as before, and a variable needs all ops that take its handle. All other ops
are whole in the start.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.inputs import NO_TENSOR
from pesto_cli.data.parts import Parts
from pesto_cli.data.plan import WHOLE_OPS, Choice, Local, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.data.split_start import SplitStart
from pesto_cli.diff import LostSplit, MappedSplit, WhyWhole, unchanged_choices
from pesto_cli.errors import BadInputError, PestoError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import PlacementFile
from pesto_cli.sharding.decisions import Decision, decisions
from pesto_cli.sharding.problems import Rewritten, prices_of, rewritten
from pesto_cli.sharding.rules.variables import is_variable
from pesto_cli.sharding.times import check_priced
from pesto_cli.sharding.variables import variable_decisions
from pesto_cli.strategies.placement_mapping import start_from


@dataclass(frozen=True)
class KeptChoices:
    """The choices of a placement's plan that can be kept, by op name, and the ops that lose theirs.

    kept, lost: together they have each op that the plan splits once.
    """

    kept: Mapping[str, Choice]
    lost: tuple[LostSplit, ...]


def split_start(placed: PlacementFile, problem: Problem) -> MappedSplit | None:
    """Map a placement and its plan to a problem; None if no op of the problem can start split.

    What the user's constraints split is split so, whatever the placement says.
    """
    if not placed.plan or problem.parts is None:
        return None
    split = _split(placed, problem, kept_choices(placed, problem).kept)
    if split is None:
        return None
    bare = replace(placed, plan=WHOLE_OPS, parts=None)  # its ops are those of the split graph
    mapped = start_from(bare, Simulator(split.problem))
    num_kept = len(placed.plan.choices.keys() & split.plan.choices.keys())
    start = SplitStart(split.plan, mapped.placement)
    return MappedSplit(start, mapped, num_kept, split.problem)


def lost_splits(placed: PlacementFile, problem: Problem) -> tuple[LostSplit, ...]:
    """Return the ops that a placement splits, and that start whole in its `split_start`.

    Raises:
        UnfitError: the problem has no prices of parts.
    """
    found = kept_choices(placed, problem)
    if _split(placed, problem, found.kept) is not None:
        return found.lost
    plan_fails = (LostSplit(op, each, WhyWhole.CANNOT) for op, each in found.kept.items())
    return (*found.lost, *plan_fails)


def _split(placed: PlacementFile, problem: Problem, kept: Mapping[str, Choice]) -> Rewritten | None:
    try:
        plan = replace(placed.plan, choices={**kept, **problem.chosen.choices})
        return rewritten(problem, plan) if kept else None
    except PestoError:
        return None  # the plan as a whole does not fit any more


def kept_choices(placed: PlacementFile, problem: Problem) -> KeptChoices:
    """Return the choices of a placement's plan that can be kept for a problem.

    Raises:
        UnfitError: the problem has no prices of parts.
    """
    parts = prices_of(problem)
    specs = parts.op_specs
    return _kept_choices(placed, problem.graph, specs, problem.local, parts)


def kept_without_prices(
    placed: PlacementFile, graph: OpGraph, specs: Sequence[OpSpec | None]
) -> KeptChoices:
    """Return the choices that can be kept for a graph if a profile prices the parts.

    specs: `[num_ops]`.
    """
    return _kept_choices(placed, graph, specs, frozenset(), None)


def _kept_choices(
    placed: PlacementFile,
    graph: OpGraph,
    specs: Sequence[OpSpec | None],
    local: Set[Local],
    parts: Parts | None,
) -> KeptChoices:
    choices, unchanged = placed.plan.choices, unchanged_choices(placed, graph)
    decided: dict[int, Decision] = {}
    why: dict[str, WhyWhole] = {}
    for name, choice in choices.items():
        if name not in unchanged:
            why[name] = WhyWhole.CHANGED if name in graph.index_of else WhyWhole.GONE
            continue
        try:
            found = decisions(Plan({name: choice}), graph, specs)
        except PestoError:
            why[name] = WhyWhole.CANNOT
            continue
        if any(each.alternative.local not in (None, *local) for each in found.values()):
            why[name] = WhyWhole.NOT_EXACT  # this search may not do it
        elif parts is not None and not _are_priced(parts, found):
            why[name] = WhyWhole.NO_PRICE
        else:
            decided |= found
    kept = {graph.names[op] for op in fitting(graph, specs, decided)}
    for op, decision in decided.items():
        takes_variable = is_variable(decision.spec) or decision.spec.takes_handle
        if graph.names[op] not in kept:
            why[graph.names[op]] = WhyWhole.VARIABLE if takes_variable else WhyWhole.NEIGHBOUR
    return KeptChoices(
        kept={name: choice for name, choice in choices.items() if name in kept},
        lost=tuple(LostSplit(name, choices[name], why[name]) for name in choices if name in why),
    )


def _are_priced(parts: Parts, decided: Mapping[int, Decision]) -> bool:
    try:
        for op, decision in decided.items():
            check_priced(parts, op, decision)
    except BadInputError:
        return False
    return True


def fitting(
    graph: OpGraph, specs: Sequence[OpSpec | None], decided: Mapping[int, Decision]
) -> Mapping[int, Decision]:
    """Return as many decisions as fit each other: {op index: decision}.

    An op that takes partial tensors or values of its own fits the decisions of their producers, and
    a variable those of all ops that take its handle.
    """
    kept = _fitting(graph, specs, decided)
    while len(kept) < len(decided):
        kept, decided = _fitting(graph, specs, kept), kept
    return kept


def _fitting(
    graph: OpGraph, specs: Sequence[OpSpec | None], decided: Mapping[int, Decision]
) -> dict[int, Decision]:
    kept: dict[int, Decision] = {}
    for op in graph.topological_order.tolist():
        if op in decided and _has_its_producers(graph, op, decided[op], kept):
            kept[op] = decided[op]
    for op, decision in list(kept.items()):
        if is_variable(decision.spec):
            name, sizes = decision.alternative.name, decision.sizes
            needed = variable_decisions(graph, specs, op, name, sizes)
            if needed is None or not _are_in(needed, kept):
                del kept[op]
        elif not _takers_have_their_own(graph, op, decision, kept):
            del kept[op]
    return kept


def _takers_have_their_own(
    graph: OpGraph, op: int, decision: Decision, kept: Mapping[int, Decision]
) -> bool:
    """Whether each op that takes values of which each part has its own is split alike."""
    return all(
        taker in kept
        for output in decision.own_outputs
        for taker in graph.consumers_of(graph.tensors_of(op)[output]).tolist()
    )


def _are_in(needed: Mapping[int, Decision], kept: Mapping[int, Decision]) -> bool:
    return all(
        op in kept
        and (kept[op].alternative.name, kept[op].sizes) == (each.alternative.name, each.sizes)
        for op, each in needed.items()
    )


def _has_its_producers(
    graph: OpGraph, op: int, decision: Decision, kept: Mapping[int, Decision]
) -> bool:
    """Whether each partial tensor and each piece of a variable that an op takes is still there."""
    for slot in decision.slots_of_pieces:
        tensor = NO_TENSOR if graph.inputs is None else int(graph.inputs[op][slot])
        producer = int(graph.tensor_producer[tensor]) if tensor != NO_TENSOR else -1
        before = kept.get(producer)
        if before is None or len(before.sizes) != len(decision.sizes):
            return False
        output = graph.tensors_of(producer).index(tensor)
        if before.alternative.outputs[output] != decision.alternative.inputs[slot]:
            return False
    return True
