"""Products: matrices, batches with broadcasting, and equations."""

from hypothesis import strategies as st
from sharding_ops import Case, case, known
from sharding_tensors import shapes, sizes, tensors


@st.composite
def matmul(draw: st.DrawFn) -> Case:
    rows, columns, contracted = draw(sizes), draw(sizes), draw(sizes)
    first, second = draw(st.booleans()), draw(st.booleans())
    return case(
        "MatMul",
        draw(tensors(_matrix(rows, contracted, first))),
        draw(tensors(_matrix(contracted, columns, second))),
        transpose_a=first,
        transpose_b=second,
    )


@st.composite
def batch_matmul(draw: st.DrawFn, op_type: str) -> Case:
    rows, columns, contracted = draw(sizes), draw(sizes), draw(sizes)
    first, second = draw(st.booleans()), draw(st.booleans())
    left, right = draw(_batches(can_broadcast=op_type != "BatchMatMul"))
    types = {"Tout": "float64"} if op_type == "BatchMatMulV3" else {}
    return case(
        op_type,
        draw(tensors((*left, *_matrix(rows, contracted, first)))),
        draw(tensors((*right, *_matrix(contracted, columns, second)))),
        adj_x=first,
        adj_y=second,
        **types,
    )


@st.composite
def _batches(draw: st.DrawFn, can_broadcast: bool) -> list[tuple[int, ...]]:
    full = draw(shapes(max_rank=2))
    if not can_broadcast:
        return [full, full]
    return [
        tuple(draw(st.sampled_from((size, size, 1))) for size in full[draw(st.integers(0, 1)) :])
        for _ in range(2)
    ]


def _matrix(rows: int, columns: int, is_transposed: bool) -> tuple[int, int]:
    return (columns, rows) if is_transposed else (rows, columns)


EQUATIONS = """
    ab,bc->ac ab,cb->ca abc,cd->abd abcd,aecd->aceb ab,ab->a ab,c->b a,b->ab abc->cab abc->b ab->
    aab,bc->ac ab->abb ab,ab-> ,a->a ...ab,...bc->...ac a...,ab->b... ...a->a... ab...->...a
"""


@st.composite
def einsum(draw: st.DrawFn) -> Case:
    equation = draw(st.sampled_from(EQUATIONS.split()))
    extents = {label: (draw(sizes),) for label in "abcde"}
    operands = equation.partition("->")[0].split(",")
    shapes = [
        sum((extents.get(label, batch) for label in operand.replace("...", ".")), ())
        for operand, batch in zip(operands, draw(_batches(can_broadcast=True)), strict=False)
    ]
    return case("Einsum", [draw(tensors(shape)) for shape in shapes], equation=equation)


@st.composite
def band_part(draw: st.DrawFn) -> Case:
    limits = [known(draw(st.integers(-1, 1)), "int64") for _ in range(2)]
    return case("MatrixBandPart", draw(tensors(draw(shapes(min_rank=2)))), *limits)


CASES = {
    "MatMul": matmul(),
    **{name: batch_matmul(name) for name in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")},
    "Einsum": einsum(),
    "MatrixBandPart": band_part(),
}
