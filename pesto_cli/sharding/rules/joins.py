"""Ops that join tensors along an axis, and their inverses. Factors: the other axes.

All of them are linear in all inputs together: a sum stays open if all inputs are partial.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.rules.axes import along, constant_axis
from pesto_cli.sharding.rules.open_sums import open_sum


def concat(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes but the joined one. Linear in all tensors together.

    ConcatV2 has the axis as its last input, Concat as its first.
    """
    tensors = list(range(len(spec.inputs)))
    axis_slot = tensors.pop(0 if spec.type == "Concat" else -1)
    rank = len(spec.outputs[0].sizes)
    joined = constant_axis(spec, axis_slot, rank)
    for axis in range(rank) if joined is not None else ():
        if axis != joined:
            yield along(spec, axis, dict.fromkeys(tensors, axis))
    yield from open_sum(spec, *tensors)


def split(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes but the one that is cut. Linear.

    Inputs: axis, tensor; those of SplitV: tensor, sizes, axis.
    """
    tensor, axis_slot = (1, 0) if spec.type == "Split" else (0, 2)
    rank = len(spec.inputs[tensor].sizes)
    divided = constant_axis(spec, axis_slot, rank)
    for axis in range(rank) if divided is not None else ():
        if axis != divided:
            yield along(spec, axis, {tensor: axis})
    yield from open_sum(spec, tensor)


def pack(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes but the new one. Linear in all tensors together."""
    rank = len(spec.outputs[0].sizes)
    new = _axis(spec, rank)
    for own in range(rank - 1):
        axis = own + (own >= new)
        yield along(spec, axis, dict.fromkeys(range(len(spec.inputs)), own))
    yield from open_sum(spec, *range(len(spec.inputs)))


def unpack(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes but the one that is removed. Linear."""
    rank = len(spec.inputs[0].sizes)
    gone = _axis(spec, rank)
    for axis in range(rank - 1 if spec.outputs else 0):
        yield along(spec, axis, {0: axis + (axis >= gone)})
    yield from open_sum(spec, 0)


def _axis(spec: OpSpec, rank: int) -> int:
    axis = spec.attribute["axis"]
    return axis % rank if isinstance(axis, int) else 0


RULES: dict[str, Rule] = {
    "Concat": concat,
    "ConcatV2": concat,
    "Split": split,
    "SplitV": split,
    "Pack": pack,
    "Unpack": unpack,
}
