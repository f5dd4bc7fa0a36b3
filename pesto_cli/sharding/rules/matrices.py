"""Matrices `[..., rows, columns]`: diagonals, factorisations, inverses, systems of equations.

Factors: the leading axes.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.rules.axes import along

_ONE = """
    MatrixDiag MatrixDiagV2 MatrixDiagV3 MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3
    Cholesky LogMatrixDeterminant MatrixDeterminant MatrixInverse MatrixLogarithm
    MatrixSquareRoot Qr SelfAdjointEigV2 Svd
"""
_TWO = """
    MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3
    CholeskyGrad MatrixSolve MatrixTriangularSolve
"""
# Op type -> the number of inputs that have the leading axes. The inputs after them are numbers of
# diagonals, sizes and padding.
_TENSORS = dict.fromkeys(_ONE.split(), 1) | dict.fromkeys(_TWO.split(), 2)


def leading_axes(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the axes before rows and columns, if they are equal in all inputs and outputs."""
    num_tensors = _TENSORS[spec.type]
    tensors = (*spec.inputs[:num_tensors], *spec.outputs)
    rank = max(len(operand.sizes) for operand in tensors)
    leading = max(tensor.sizes[: rank - 2] for tensor in tensors)
    if any(tensor.sizes[: rank - 2] != leading for tensor in tensors):
        return  # an output that the op does not compute is empty, for example eigenvectors
    for axis in range(len(leading)):
        yield along(spec, axis, dict.fromkeys(range(num_tensors), axis))


def triangular_solve(spec: OpSpec) -> Iterator[Alternative]:
    """MatrixTriangularSolve. Factors: the leading axes, if both inputs have them."""
    matrices, sides = spec.inputs
    if matrices.sizes[:-2] == sides.sizes[:-2]:
        yield from leading_axes(spec)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_TENSORS, leading_axes),
    "MatrixTriangularSolve": triangular_solve,
}
