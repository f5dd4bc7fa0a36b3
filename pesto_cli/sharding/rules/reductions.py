"""Reductions. Factors: the axes of the input.

An axis that is kept is split in input and output. An axis that is reduced leaves partial outputs,
which the same reduction combines; parts of a mean are multiplied by their share of the axis first.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.alternative import (
    Alternative,
    FromOp,
    PartOp,
    Program,
    Rule,
    one_op_each,
    part_spec,
    sources,
)
from pesto_cli.sharding.layouts import SUM, Partial, Reduction
from pesto_cli.sharding.rules.additions import channel_axis
from pesto_cli.sharding.rules.axes import along, input_layouts
from pesto_cli.sharding.rules.open_sums import FLOATS, open_sum


def sum_(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes; partial along those that are reduced. Linear."""
    yield from reduction(spec, SUM)
    yield from open_sum(spec, 0)


def mean(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes; partial along those that are reduced, times the share of the part. Linear.

    Means that are rounded to integers are split along the axes that are kept only.
    """
    if spec.outputs[0].dtype in FLOATS:
        yield from reduction(spec, SUM, _means_times_shares)
        yield from open_sum(spec, 0)
    else:
        yield from kept_axes(spec)


def reduction(
    spec: OpSpec,
    partial: Partial,
    program: Callable[[OpSpec, Alternative, tuple[int, ...]], Program] = one_op_each,
) -> Iterator[Alternative]:
    """Factors: all axes; partial along those that are reduced, by the same reduction.

    program: computes the parts of an axis that is reduced.
    """
    yield from kept_axes(spec)
    for axis in sorted(reduced_axes(spec) or ()):
        yield replace(_reduced(spec, axis, partial), program=program)


def kept_axes(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the axes that are kept."""
    reduced = reduced_axes(spec)
    if reduced is None:
        return
    kept = [axis for axis in range(len(spec.inputs[0].sizes)) if axis not in reduced]
    for position, axis in enumerate(kept):
        yield along(spec, axis if spec.attribute.get("keep_dims") else position, {0: axis})


def reduced_axes(spec: OpSpec) -> frozenset[int] | None:
    """Return the axes in the second input, a scalar or a vector; None if they are not known."""
    value = spec.inputs[1].value
    if value is None:
        return None
    rank = len(spec.inputs[0].sizes)
    axes = value if isinstance(value, tuple) else (value,)
    return frozenset(axis % rank for axis in axes if isinstance(axis, int))


def l2_loss(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes, with partial outputs: the sum of the squares of all elements."""
    for axis in range(len(spec.inputs[0].sizes)):
        yield _reduced(spec, axis, SUM)


def bias_add_grad(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes; partial along all but the channels. Linear."""
    channels = channel_axis(spec)
    for axis in range(len(spec.inputs[0].sizes)):
        yield along(spec, 0, {0: axis}) if axis == channels else _reduced(spec, axis, SUM)
    yield from open_sum(spec, 0)


def _reduced(spec: OpSpec, axis: int, partial: Partial) -> Alternative:
    """Return the alternative that splits an axis of the first input, which is reduced."""
    size = spec.inputs[0].sizes[axis]
    return Alternative(f"reduced axis {axis}", size, input_layouts(spec, {0: axis}), (partial,))


def _means_times_shares(spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    """Return the mean of each part, and its product with the share of the part."""
    ops: list[PartOp] = []
    for part, size in enumerate(sizes):
        own = part_spec(spec, alternative, size)
        ops.append(PartOp(part, own, sources(own)))
        share = _share(own.outputs[0], size / sum(sizes))
        ops.append(PartOp(part, share, (FromOp(2 * part), None), "share"))
    return Program(tuple(ops), (tuple(FromOp(2 * part + 1) for part in range(len(sizes))),))


def _share(mean: Operand, share: float) -> OpSpec:
    factor = Operand((), mean.dtype, share)
    return OpSpec("Mul", (("T", str(mean.dtype)),), (replace(mean, value=None), factor), (mean,))


RULES: dict[str, Rule] = {
    "Sum": sum_,
    "Mean": mean,
    "Max": functools.partial(reduction, partial=Partial(Reduction.MAX)),
    "Min": functools.partial(reduction, partial=Partial(Reduction.MIN)),
    "All": functools.partial(reduction, partial=Partial(Reduction.ALL)),
    "Any": functools.partial(reduction, partial=Partial(Reduction.ANY)),
    **dict.fromkeys(("Prod", "EuclideanNorm", "ArgMax", "ArgMin"), kept_axes),
    "L2Loss": l2_loss,
    "BiasAddGrad": bias_add_grad,
}
