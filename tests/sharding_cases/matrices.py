"""Diagonals of matrices: one and several."""

import numpy as np
from hypothesis import strategies as st
from sharding_ops import Array, Case, Known, case, known
from sharding_tensors import shapes, tensors


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


CASES = {
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
