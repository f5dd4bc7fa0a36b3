"""Ops that give a tensor another shape or order of axes. Factors: axes of the output.

All of them are linear: a sum of the input stays open.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Program, Rule, one_op_each
from pesto_cli.sharding.layouts import Split
from pesto_cli.sharding.rules.axes import along, constant
from pesto_cli.sharding.rules.elementwise import linear
from pesto_cli.sharding.rules.open_sums import open_sum


def reshape(spec: OpSpec) -> Iterator[Alternative]:
    """Reshape. Factors: the outermost axes of groups of axes that are merged and divided.

    If the outermost axis of a group has n elements in the input and m in the output, the factor has
    gcd(n, m) units: each is a contiguous part of both.
    """
    for own, axis in outermost_axes(spec.inputs[0].sizes, spec.outputs[0].sizes):
        size = math.gcd(spec.inputs[0].sizes[own], spec.outputs[0].sizes[axis])
        yield along(spec, axis, {0: own}, ((1, axis),), size)
    yield from open_sum(spec, 0)


def outermost_axes(source: tuple[int, ...], target: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Return the outermost axis of each group in two shapes with equally many elements.

    A group is a smallest sequence of axes of both with the same product. Axes of size 1 are
    skipped.
    """
    sources = [(axis, size) for axis, size in enumerate(source) if size > 1]
    targets = [(axis, size) for axis, size in enumerate(target) if size > 1]
    if 0 in (*source, *target):
        return
    while sources and targets:
        (own, left), (axis, right) = sources.pop(0), targets.pop(0)
        yield own, axis
        while left != right:
            if left < right:
                left *= sources.pop(0)[1]
            else:
                right *= targets.pop(0)[1]


def squeeze(spec: OpSpec) -> Iterator[Alternative]:
    """Squeeze. Factors: all axes that stay. The parts state which axes they remove."""
    for alternative in _in_order(spec):
        yield replace(alternative, program=_squeezed)
    yield from open_sum(spec, 0)


def expand_dims(spec: OpSpec) -> Iterator[Alternative]:
    """ExpandDims. Factors: all axes of the input."""
    yield from _in_order(spec)
    yield from open_sum(spec, 0)


def transpose(spec: OpSpec) -> Iterator[Alternative]:
    """Transpose. Factors: all axes."""
    for axis, own in enumerate(constant(spec, 1) or ()):
        yield along(spec, axis, {0: own % len(spec.inputs[0].sizes)})
    yield from open_sum(spec, 0)


def tile(spec: OpSpec) -> Iterator[Alternative]:
    """Tile. Factors: axes that are not repeated, and the copies along repeated axes."""
    for axis, count in enumerate(constant(spec, 1) or ()):
        if count == 1:
            yield along(spec, axis, {0: axis})
        else:
            yield along(spec, axis, {}, ((1, axis),), count)
    yield from open_sum(spec, 0)


def broadcast_to(spec: OpSpec) -> Iterator[Alternative]:
    """BroadcastTo. Factors: all axes; an input without the full size there is whole."""
    output = spec.outputs[0].sizes
    source = (1,) * (len(output) - len(spec.inputs[0].sizes)) + spec.inputs[0].sizes
    for axis, size in enumerate(output):
        own = axis - len(output) + len(spec.inputs[0].sizes)
        yield along(spec, axis, {0: own} if source[axis] == size else {}, ((1, axis),))
    yield from open_sum(spec, 0)


def fill(spec: OpSpec) -> Iterator[Alternative]:
    """Fill. Factors: all axes. Linear in the value."""
    for axis in range(len(spec.outputs[0].sizes)):
        yield along(spec, axis, {}, ((0, axis),))
    yield from open_sum(spec, 1)


def ensure_shape(spec: OpSpec) -> Iterator[Alternative]:
    """EnsureShape. Factors: all axes."""
    stated = spec.attribute["shape"]
    for alternative in linear(spec):
        layout = alternative.outputs[0]
        if isinstance(layout, Split) and isinstance(stated, tuple):
            yield replace(alternative, resized_attributes=(("shape", layout.axis),))
        else:
            yield alternative


def _in_order(spec: OpSpec) -> Iterator[Alternative]:
    """Split the axes that are larger than 1, which have the same order in input and output."""
    for own, axis in outermost_axes(spec.inputs[0].sizes, spec.outputs[0].sizes):
        yield along(spec, axis, {0: own})


def _squeezed(spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    """Return parts that remove the same axes, not those of which a part has only one element."""
    axes = tuple(axis for axis, size in enumerate(spec.inputs[0].sizes) if size == 1)
    if axes:
        stated = spec.attribute["squeeze_dims"] or axes
        part = spec.with_attributes(squeeze_dims=stated)
    else:  # A Squeeze without axes removes all axes of size 1.
        part = replace(spec, type="Identity", attributes=(("T", spec.attribute["T"]),))
    return one_op_each(part, alternative, sizes)


RULES: dict[str, Rule] = {
    "Reshape": reshape,
    "Squeeze": squeeze,
    "ExpandDims": expand_dims,
    "Transpose": transpose,
    "ConjugateTranspose": transpose,
    "Tile": tile,
    "BroadcastTo": broadcast_to,
    "Fill": fill,
    "EnsureShape": ensure_shape,
}
