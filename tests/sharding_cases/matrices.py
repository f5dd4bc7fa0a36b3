"""Matrices: diagonals, one and several; regular matrices, their decompositions and systems."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from sharding_ops import Array, Case, Known, case, known
from sharding_tensors import shapes, sizes, tensors


@st.composite
def to_matrices(draw: st.DrawFn, op_type: str) -> Case:
    shape = draw(shapes(min_rank=1))
    if op_type == "MatrixDiag":
        return case(op_type, draw(tensors(shape)))
    k = draw(st.integers(-1, 1))
    rows, columns = shape[-1] + max(-k, 0), shape[-1] + max(k, 0)
    return case(op_type, draw(tensors(shape)), known(k), known(rows), known(columns), np.float64(0))


@st.composite
def from_matrices(draw: st.DrawFn, op_type: str) -> Case:
    matrices = draw(tensors(draw(shapes(min_rank=2))))
    if op_type == "MatrixDiagPart":
        return case(op_type, matrices)
    return case(op_type, matrices, *draw(_band(matrices)), np.float64(7))


@st.composite
def into_matrices(draw: st.DrawFn, op_type: str) -> Case:
    matrices = draw(tensors(draw(shapes(min_rank=2))))
    if op_type == "MatrixSetDiag":
        diagonals = np.diagonal(matrices, axis1=-2, axis2=-1).copy()
        return case(op_type, matrices, draw(tensors(diagonals.shape)))
    size = min(matrices.shape[-2:])
    return case(op_type, matrices, draw(tensors((*matrices.shape[:-2], size))), known(0))


@st.composite
def _band(draw: st.DrawFn, matrices: Array) -> list[Known]:
    """Draw the numbers of the lowest and the highest diagonal."""
    rows, columns = matrices.shape[-2:]
    low = draw(st.integers(1 - rows, columns - 1))
    return [known((low, draw(st.integers(low, columns - 1))))]


@st.composite
def of_regular_matrices(draw: st.DrawFn, op_type: str) -> Case:
    """Draw positive definite matrices, and an op that takes only them."""
    matrices = draw(_positive_definite())
    if op_type == "MatrixLogarithm":
        return case(op_type, matrices.astype(np.complex128))
    return case(op_type, matrices)


@st.composite
def solved(draw: st.DrawFn, op_type: str) -> Case:
    """Draw an op that takes positive definite matrices, and other matrices of as many rows."""
    matrices = draw(_positive_definite())
    if op_type == "CholeskyGrad":
        return case(op_type, np.linalg.cholesky(matrices), draw(tensors(matrices.shape)))
    others = draw(tensors((*matrices.shape[:-1], draw(sizes))))
    if op_type == "MatrixTriangularSolve" and draw(st.booleans()):
        others = others[(0,) * (others.ndim - 2)]  # is broadcast
    return case(op_type, matrices, others, adjoint=draw(st.booleans()))


@st.composite
def decomposed(draw: st.DrawFn, op_type: str) -> Case:
    """Draw a decomposition, with the vectors or without them."""
    matrices = draw(_positive_definite())
    if op_type == "Qr":
        return case(op_type, matrices, full_matrices=draw(st.booleans()))
    has_vectors = draw(st.booleans())
    name = "compute_uv" if op_type == "Svd" else "compute_v"
    found = case(op_type, matrices, **{name: has_vectors})
    return found if has_vectors else replace(found, num_defined=1)


@st.composite
def _positive_definite(draw: st.DrawFn) -> Array:
    """Draw a batch of symmetric matrices, each with the eigenvalues 1, 2, 3, ..."""
    *leading, size = draw(shapes(min_rank=1, max_rank=3))
    vectors = np.linalg.qr(draw(tensors((*leading, size, size))))[0]
    return np.asarray((vectors * np.arange(1.0, size + 1)) @ np.swapaxes(vectors, -1, -2))


_REGULAR = """
    Cholesky LogMatrixDeterminant MatrixDeterminant MatrixInverse MatrixLogarithm
    MatrixSquareRoot
"""

CASES = {
    **{name: of_regular_matrices(name) for name in _REGULAR.split()},
    **{name: solved(name) for name in ("CholeskyGrad", "MatrixSolve", "MatrixTriangularSolve")},
    **{name: decomposed(name) for name in ("Qr", "SelfAdjointEigV2", "Svd")},
    **{name: to_matrices(name) for name in ("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3")},
    **{
        name: from_matrices(name)
        for name in ("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")
    },
    **{
        name: into_matrices(name)
        for name in ("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
    },
}
