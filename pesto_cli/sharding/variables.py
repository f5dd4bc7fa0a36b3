"""Variables in a plan: all ops that take the handle of a variable are split like the variable."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.plan import Choice
from pesto_cli.data.specs import HANDLES, OpSpec
from pesto_cli.sharding.decisions import Decision, decision_of
from pesto_cli.sharding.layouts import Layout, Replicated
from pesto_cli.sharding.rules import alternatives
from pesto_cli.sharding.rules.variables import READS


def is_handle(graph: OpGraph, tensor: int) -> bool:
    """Return whether a tensor is a handle, which cannot be converted."""
    dtypes = graph.tensor_dtype
    return bool(dtypes) and dtypes[tensor] in HANDLES


def variable_decisions(
    graph: OpGraph,
    specs: Sequence[OpSpec | None],
    variable: int,
    alternative: str,
    sizes: tuple[int, ...],
) -> Mapping[int, Decision] | None:
    """Return the decisions that splitting a variable needs: {op index: decision}.

    They include those of its slots, which the same updates take. None if an op that takes one of
    the handles cannot be split in this way.

    Args:
        graph: the graph, with inputs by slot.
        specs: `[num_ops]`.
        variable: the VarHandleOp.
        alternative: of the VarHandleOp, such as `variable 0` or `mirrored`.
        sizes: `[num_parts]`, as in `Decision`.
    """
    decided, refusing = _decided(graph, specs, variable, alternative, sizes)
    return decided if refusing is None else None


def refusing_op(
    graph: OpGraph, specs: Sequence[OpSpec | None], variable: int, alternative: str
) -> int | None:
    """Return the first op that cannot be split with a variable in this way; None if all can."""
    return _decided(graph, specs, variable, alternative, ())[1]


def _decided(
    graph: OpGraph,
    specs: Sequence[OpSpec | None],
    variable: int,
    alternative: str,
    sizes: tuple[int, ...],
) -> tuple[Mapping[int, Decision], int | None]:
    """Return decisions, and the first op that cannot be split in this way."""
    found: dict[int, Decision] = {}
    if graph.inputs is None:
        return found, variable
    waiting, choice = [variable], Choice(alternative, sizes)
    while waiting:
        op = waiting.pop()
        spec = specs[op]
        decision = None if spec is None else decision_of(spec, choice)
        if decision is None:
            return found, op
        found[op] = decision
        (handle,), (layout,) = graph.tensors_of(op), decision.alternative.outputs
        for taker in graph.consumers_of(handle).tolist():
            if taker in found:
                continue
            row = graph.inputs[taker].tolist()
            slots = tuple(slot for slot, tensor in enumerate(row) if tensor == handle)
            taking = _taking(specs[taker], slots, layout, sizes)
            if taking is not None:
                found[taker] = taking
                handles = [slot for slot, each in enumerate(taking.spec.inputs) if each.is_handle]
                producers = {int(graph.tensor_producer[row[slot]]) for slot in handles}
                waiting += producers - found.keys() - set(waiting)
            elif not (isinstance(layout, Replicated) and graph.types[taker] in READS):
                return found, taker
    return found, None


def choices_of(graph: OpGraph, decided: Mapping[int, Decision]) -> dict[str, Choice]:
    """Return decisions as the choices of a plan."""
    return {graph.names[op]: decision.choice for op, decision in decided.items()}


@lru_cache(maxsize=2**14)
def _taking(
    spec: OpSpec | None, slots: tuple[int, ...], layout: Layout, sizes: tuple[int, ...]
) -> Decision | None:
    """Return how an op is split if a handle that it takes has a layout; None if it cannot be.

    slots: those in which the op takes the handle.
    """
    if spec is None:
        return None
    ways = (way for way in alternatives(spec) if all(way.inputs[each] == layout for each in slots))
    way = next(ways, None)
    return None if way is None else Decision(spec, way, sizes)
