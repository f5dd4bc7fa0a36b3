"""Ops that take a range of each axis, pad, reverse or roll it. Factors: axes that do not change.

All of them are linear: a sum of the input stays open, unless a number is padded that is not 0.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.rules.axes import along, constant
from pesto_cli.sharding.rules.open_sums import open_sum


def slice_(spec: OpSpec) -> Iterator[Alternative]:
    """Slice. Factors: the axes that are taken whole."""
    for axis in _unchanged(spec):
        yield along(spec, axis, {0: axis}, ((2, axis),))
    yield from open_sum(spec, 0)


def strided_slice(spec: OpSpec) -> Iterator[Alternative]:
    """StridedSlice. Factors: the axes that are taken whole.

    Ends of ranges need no change: TensorFlow limits them to the size of the axis.
    """
    for own, axis in _ranges(spec, len(spec.inputs[0].sizes)):
        if spec.inputs[0].sizes[own] == spec.outputs[0].sizes[axis]:
            yield along(spec, axis, {0: own})
    yield from open_sum(spec, 0)


def strided_slice_grad(spec: OpSpec) -> Iterator[Alternative]:
    """StridedSliceGrad. Factors: the axes that the slice has taken whole."""
    gradient, output = spec.inputs[4].sizes, spec.outputs[0].sizes
    for axis, own in _ranges(spec, len(output)):
        if gradient[own] == output[axis]:
            yield along(spec, axis, {4: own}, ((0, axis),))
    yield from open_sum(spec, 4)


def _ranges(spec: OpSpec, rank: int) -> Iterator[tuple[int, int]]:
    """Return the axes of the sliced tensor of which a range with stride 1 is taken.

    rank: of the sliced tensor.
    Returns pairs of its axis and the axis of the slice; nothing if the strides are not known.
    """
    strides = constant(spec, 3)
    if strides is None:
        return
    own = axis = 0
    for index in _entries(spec, rank):
        if index is not None and _has(spec, "new_axis_mask", index):
            axis += 1
        elif index is not None and _has(spec, "shrink_axis_mask", index):
            own += 1
        else:
            if index is None or strides[index] == 1:
                yield own, axis
            own, axis = own + 1, axis + 1


def _entries(spec: OpSpec, rank: int) -> list[int | None]:
    """Return the index of each entry of begin, end and strides; None for axes of an ellipsis."""
    indices = list(range(spec.inputs[3].sizes[0]))
    ellipsis = [index for index in indices if _has(spec, "ellipsis_mask", index)]
    first = ellipsis[0] if ellipsis else len(indices)
    before, after = indices[:first], indices[first + 1 :]
    ranges = [index for index in (*before, *after) if not _has(spec, "new_axis_mask", index)]
    return [*before, *[None] * (rank - len(ranges)), *after]


def _has(spec: OpSpec, mask: str, index: int) -> bool:
    bits = spec.attribute[mask]
    return isinstance(bits, int) and bool(bits >> index & 1)


def pad(spec: OpSpec) -> Iterator[Alternative]:
    """Pad and MirrorPad. Factors: the axes without padding."""
    for axis in _unchanged(spec):
        yield along(spec, axis, {0: axis})
    if len(spec.inputs) == 2 or spec.inputs[2].value == 0:
        yield from open_sum(spec, 0)


def reverse(spec: OpSpec) -> Iterator[Alternative]:
    """ReverseV2 takes axes, Reverse a boolean for each axis. Factors: the other axes."""
    values = constant(spec, 1)
    if values is not None:
        if spec.type == "Reverse":
            values = tuple(axis for axis, is_reversed in enumerate(values) if is_reversed)
        yield from _all_but(spec, values)
    yield from open_sum(spec, 0)


def reverse_sequence(spec: OpSpec) -> Iterator[Alternative]:
    """ReverseSequence: inputs data, lengths. Factors: all axes but that of the sequence."""
    sequence, batch = spec.attribute["seq_dim"], spec.attribute["batch_dim"]
    for axis in range(len(spec.outputs[0].sizes)):
        if axis != sequence:
            yield along(spec, axis, {0: axis, 1: 0} if axis == batch else {0: axis})
    yield from open_sum(spec, 0)


def roll(spec: OpSpec) -> Iterator[Alternative]:
    """Roll. Factors: the axes that are not shifted."""
    axes = constant(spec, 2)
    if axes is not None:
        yield from _all_but(spec, axes)
    yield from open_sum(spec, 0)


def _all_but(spec: OpSpec, axes: tuple[int, ...]) -> Iterator[Alternative]:
    rank = len(spec.outputs[0].sizes)
    changed = {axis % rank for axis in axes}
    for axis in range(rank):
        if axis not in changed:
            yield along(spec, axis, {0: axis})


def _unchanged(spec: OpSpec) -> list[int]:
    """Return the axes that have the same size in the first input and the output."""
    pairs = zip(spec.inputs[0].sizes, spec.outputs[0].sizes, strict=True)
    return [axis for axis, (before, after) in enumerate(pairs) if before == after]


RULES: dict[str, Rule] = {
    "Slice": slice_,
    "StridedSlice": strided_slice,
    "StridedSliceGrad": strided_slice_grad,
    **dict.fromkeys(("Pad", "PadV2", "MirrorPad", "MirrorPadGrad"), pad),
    **dict.fromkeys(("Reverse", "ReverseV2"), reverse),
    "ReverseSequence": reverse_sequence,
    "Roll": roll,
}
