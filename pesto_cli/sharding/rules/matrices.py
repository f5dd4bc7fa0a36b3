"""Diagonals of matrices `[..., rows, columns]`. Factors: the leading axes."""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import WHOLE, Split

# The number of inputs that have the leading axes. The inputs after them are numbers of
# diagonals, sizes and padding.
_TENSORS = {
    "MatrixDiag": 1,
    "MatrixDiagV2": 1,
    "MatrixDiagV3": 1,
    "MatrixDiagPart": 1,
    "MatrixDiagPartV2": 1,
    "MatrixDiagPartV3": 1,
    "MatrixSetDiag": 2,
    "MatrixSetDiagV2": 2,
    "MatrixSetDiagV3": 2,
}


def leading_axes(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the axes before those of the matrices, which all matrices and diagonals have."""
    num_tensors = _TENSORS[spec.type]
    rank = max(len(operand.sizes) for operand in (spec.inputs[0], spec.outputs[0]))
    for axis in range(rank - 2):
        split = Split(axis)
        inputs = (split,) * num_tensors + (WHOLE,) * (len(spec.inputs) - num_tensors)
        yield Alternative(f"axis {axis}", spec.outputs[0].sizes[axis], inputs, (split,))


RULES: dict[str, Rule] = dict.fromkeys(_TENSORS, leading_axes)
