"""Decisions: the choices of a plan, checked against the ops of a graph."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.specs import SMALL_CONSTANT_ELEMENTS, Operand, OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.sharding.alternative import Alternative, scaled_extents
from pesto_cli.sharding.layouts import Layout, Own, Partial, Split, Whole
from pesto_cli.sharding.rules import all_alternatives, has_rule

MAX_PARTS = SMALL_CONSTANT_ELEMENTS
"""No op can have more parts, because the extents of its parts are a small constant."""


Extents = tuple[int, ...]


@dataclass(frozen=True)
class Decision:
    """A checked choice, with the alternative that it names."""

    spec: OpSpec
    alternative: Alternative
    sizes: tuple[int, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.spec, self.alternative.name, self.sizes)))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def choice(self) -> Choice:
        """The choice that the decision checks."""
        return Choice(self.alternative.name, self.sizes)

    @cached_property
    def input_extents(self) -> tuple[Extents, ...]:
        """The extents of all parts of each input on the axis that is split; empty if none is."""
        return tuple(map(self._extents, self.spec.inputs, self.alternative.inputs))

    @cached_property
    def output_extents(self) -> tuple[Extents, ...]:
        """The same of each output."""
        return tuple(map(self._extents, self.spec.outputs, self.alternative.outputs))

    def _extents(self, operand: Operand, layout: Layout) -> Extents:
        if not isinstance(layout, Split):
            return ()
        return scaled_extents(operand.sizes[layout.axis], self.sizes, self.alternative.size)

    @cached_property
    def own_outputs(self) -> tuple[int, ...]:
        """The numbers of the outputs with layout `Own`."""
        layouts = enumerate(self.alternative.outputs)
        return tuple(output for output, layout in layouts if isinstance(layout, Own))

    @cached_property
    def slots_of_pieces(self) -> tuple[int, ...]:
        """The slots in which parts take what only the parts of their producer can give.

        These are partial tensors, values of a part's own, and pieces or copies of a variable.
        """
        operands, layouts = self.spec.inputs, self.alternative.inputs
        return tuple(
            slot
            for slot, (operand, layout) in enumerate(zip(operands, layouts, strict=True))
            if isinstance(layout, Partial | Own)
            or (operand.is_handle and not isinstance(layout, Whole))
        )


def decisions(plan: Plan, graph: OpGraph, specs: Sequence[OpSpec | None]) -> dict[int, Decision]:
    """Return the decision for each op that is split: {op index: decision}.

    specs: `[num_ops]`.

    Raises:
        BadInputError: an op is unknown or cannot be split in this way, or its sizes do not fit.
    """
    if plan and graph.inputs is None:
        raise BadInputError(
            "the profile does not store the inputs of ops by slot, so no op can be split; "
            "ops.inputs was expected: profile the graph again."
        )
    found = {}
    for name, choice in plan.choices.items():
        op = graph.index_of.get(name)
        if op is None:
            raise BadInputError(
                f"the plan splits op {name!r}, which the graph does not have; an op of the graph "
                "was expected: solve a profile of this graph."
            )
        spec = specs[op]
        decision = None if spec is None else decision_of(spec, choice)
        if decision is None:
            raise BadInputError(
                f"the plan splits op {name!r} ({graph.types[op]}) by {choice.alternative!r}; "
                f"{_expected(graph.types[op], spec)}."
            )
        _check_sizes(name, decision)
        found[op] = decision
    return found


@lru_cache(maxsize=2**14)
def decision_of(spec: OpSpec, choice: Choice) -> Decision | None:
    """Return the decision with unchecked sizes; None if the op has no such alternative."""
    for alternative in all_alternatives(spec):
        if alternative.name == choice.alternative:
            return Decision(spec, alternative, choice.sizes)
    return None


def num_alone(decision: Decision | None) -> int:
    """Return the number of parts of an op if its parts do not affect each other, else 0.

    For a whole op it is 0, too. A part of an op on a variable reads or writes its own piece or
    copy.
    """
    if decision is None:
        return 0
    takes_pieces = any(
        operand.is_handle and not isinstance(layout, Whole)
        for operand, layout in zip(decision.spec.inputs, decision.alternative.inputs, strict=True)
    )
    return len(decision.sizes) if takes_pieces or not decision.spec.is_stateful else 0


def _expected(op_type: str, spec: OpSpec | None) -> str:
    known = [] if spec is None else [each.name for each in all_alternatives(spec)]
    if known:
        return f"one of {', '.join(map(repr, known))} was expected"
    if not has_rule(op_type):
        return f"no rule says how to split a {op_type}: leave it out of the plan"
    if spec is None or not spec.is_static:
        return (
            "it cannot be split, because its shapes are not static, or the constraints or a node "
            "outside the step keep it whole: leave it out of the plan"
        )
    return "it cannot be split: leave it out of the plan"


def _check_sizes(name: str, decision: Decision) -> None:
    alternative, sizes = decision.alternative, decision.sizes
    if not 2 <= len(sizes) <= MAX_PARTS:
        raise BadInputError(
            f"the plan splits op {name!r} into {len(sizes)} parts; 2 to {MAX_PARTS} were expected."
        )
    if alternative.size is None:
        if set(sizes) != {1}:
            raise BadInputError(
                f"the plan gives op {name!r} parts of sizes {_shown(sizes)} by "
                f"{alternative.name!r}, which has no sizes; 1 for each part was expected."
            )
    elif min(sizes) < 1 or sum(sizes) != alternative.size:
        raise BadInputError(
            f"the plan splits op {name!r} by {alternative.name!r} into parts of sizes "
            f"{_shown(sizes)}, which add up to {sum(sizes)}; sizes of at least 1 that add up to "
            f"{alternative.size} were expected."
        )


def _shown(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:8])) + (", ..." if len(sizes) > 8 else "")
