"""The sharding rules of op types: one file for each family of ops, and a line in `RULES` each.

A rule takes the `OpSpec` of an op and returns its alternatives. It states the factors of the op,
which are the dimensions of its loop nest, and the layout of each operand when a factor is split
(the idea of Shardy's op sharding rules and of Alpa's, Section 4).
"""

from collections.abc import Sequence
from functools import lru_cache

from pesto_cli.data.plan import LOCAL, REPLICATED_NAME, Local
from pesto_cli.data.specs import OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.plugins import Registry, answered, called_with
from pesto_cli.sharding.alternative import Alternative, Program, Rule
from pesto_cli.sharding.layouts import REPLICATED, WHOLE, Split
from pesto_cli.sharding.rules import (
    additions,
    arithmetic,
    batch_norm,
    batch_norm_gradient,
    blocks,
    calls,
    constants,
    convolution,
    elementwise,
    fourier,
    gathers,
    joins,
    matmul,
    matrices,
    one_axis,
    pooling,
    random,
    recurrent,
    reductions,
    resize,
    scatter,
    segments,
    select,
    shapes,
    slices,
    variables,
    whole,
)

RULES: Registry[Rule] = Registry(
    "pesto.rules",
    {
        **additions.RULES,
        **arithmetic.RULES,
        **batch_norm.RULES,
        **batch_norm_gradient.RULES,
        **blocks.RULES,
        **calls.RULES,
        **constants.RULES,
        **convolution.RULES,
        **elementwise.RULES,
        **fourier.RULES,
        **gathers.RULES,
        **joins.RULES,
        **matmul.RULES,
        **matrices.RULES,
        **one_axis.RULES,
        **pooling.RULES,
        **random.RULES,
        **recurrent.RULES,
        **reductions.RULES,
        **resize.RULES,
        **scatter.RULES,
        **segments.RULES,
        **select.RULES,
        **shapes.RULES,
        **slices.RULES,
        **variables.RULES,
        **whole.RULES,
    },
    called_with("spec"),
)

# Types of ops with scratch memory among their operands, which has no known shape.
WITH_SCRATCH = frozenset({*batch_norm.RULES, *batch_norm_gradient.RULES})


def alternatives(spec: OpSpec, local: frozenset[Local] = frozenset()) -> tuple[Alternative, ...]:
    """Return the ways to split an op that are allowed; see `all_alternatives`.

    local: what parts may compute in another way than the whole op.
    """
    ways = all_alternatives(spec)
    if all(way.local is None for way in ways):
        return ways
    return tuple(way for way in ways if way.local is None or way.local in local)


@lru_cache(maxsize=2**16)
def all_alternatives(spec: OpSpec) -> tuple[Alternative, ...]:
    """Return the ways in which an op can be split; empty if it has no rule or must stay whole.

    Every op without a state can also be computed several times (`replicated`).

    Raises:
        BadInputError: the operands or attributes are not those of an op of this type.
        EnvironmentFailedError: the rule is from a plug-in, and cannot be used or failed.
    """
    if spec.type not in RULES or not (spec.is_static or spec.type in WITH_SCRATCH):
        return ()
    try:
        with RULES.at_work(spec.type) as rule:
            ways = [answered(Alternative, way) for way in rule(spec)]
            if RULES.plug_in(spec.type) is not None:
                _check(spec, ways)
        found = tuple(way for way in ways if _is_possible(spec, way))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise BadInputError(
            f"an op of type {spec.type} has {len(spec.inputs)} inputs and {len(spec.outputs)} "
            f"outputs that do not fit its rule; the operands of a {spec.type} were "
            "expected: profile the graph again."
        ) from error
    return (*found, _replicated(spec)) if _is_pure(spec) else found


def preferred_alternatives(spec: OpSpec, local: frozenset[Local]) -> Sequence[Alternative]:
    """Return the alternatives that are allowed; local ones replace exact ones."""
    ways = alternatives(spec, local)
    replaced = {way.name.removesuffix(LOCAL) for way in ways if way.local is not None}
    return [way for way in ways if way.name not in replaced] if replaced else ways


def has_rule(op_type: str) -> bool:
    """Return whether there is a rule for an op type."""
    return op_type in RULES


def _check(spec: OpSpec, ways: Sequence[Alternative]) -> None:
    """Raise ValueError or TypeError if an alternative of a plug-in does not fit the op."""
    names = [way.name for way in ways]
    if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise ValueError(f"its alternatives have the names {names}; different texts were expected")
    for way in ways:
        for what, operands, layouts in (
            ("inputs", spec.inputs, way.inputs),
            ("outputs", spec.outputs, way.outputs),
        ):
            if len(layouts) != len(operands):
                raise ValueError(
                    f"alternative {way.name!r} has {len(layouts)} layouts of {what}; the op has "
                    f"{len(operands)} {what}"
                )
            for operand, layout in zip(operands, layouts, strict=True):
                if isinstance(layout, Split):
                    _check_axis(way, layout.axis, operand.sizes)
        if way.size is not None and way.size > 1:
            answered(Program, way.program(spec, way, way.equal_sizes(2)))


def _check_axis(way: Alternative, axis: int, sizes: Sequence[int]) -> None:
    if not 0 <= axis < len(sizes):
        raise ValueError(f"alternative {way.name!r} splits axis {axis} of a shape {list(sizes)}")
    if way.size and sizes[axis] % way.size:
        raise ValueError(
            f"alternative {way.name!r} has a size of {way.size}, and splits an axis of "
            f"{sizes[axis]}, which is not a multiple of it"
        )


def _is_possible(spec: OpSpec, alternative: Alternative) -> bool:
    """Return whether there are two units to deal, and the constants to scale are known."""
    has_units = alternative.size is None or alternative.size > 1
    return has_units and all(spec.inputs[slot].value is not None for slot, _ in alternative.resized)


def _is_pure(spec: OpSpec) -> bool:
    """Return whether computing an op several times changes nothing, and gives equal outputs."""
    has_effect = spec.is_stateful or spec.type in variables.RULES or not spec.outputs
    operands = (*spec.inputs, *spec.outputs)
    return not has_effect and not any(operand.is_handle for operand in operands)


def _replicated(spec: OpSpec) -> Alternative:
    return Alternative(
        REPLICATED_NAME,
        None,
        inputs=(WHOLE,) * len(spec.inputs),
        outputs=(REPLICATED,) * len(spec.outputs),
    )
