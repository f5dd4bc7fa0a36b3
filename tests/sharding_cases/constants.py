"""Ops that do not depend on data."""

from hypothesis import strategies as st
from sharding_ops import Case, case, known
from sharding_tensors import shapes, tensors

counts = st.integers(1, 9)


@st.composite
def const(draw: st.DrawFn) -> Case:
    return case("Const", value=draw(tensors(draw(shapes()))))


@st.composite
def of_a_shape(draw: st.DrawFn, op_type: str) -> Case:
    return case(op_type, draw(tensors(draw(shapes()))))


@st.composite
def shape_n(draw: st.DrawFn) -> Case:
    return case("ShapeN", [draw(tensors(draw(shapes()))) for _ in range(2)])


@st.composite
def concat_offset(draw: st.DrawFn) -> Case:
    rows = [known([size, 2]) for size in draw(shapes(min_rank=2))]
    return case("ConcatOffset", known(0), rows)


@st.composite
def two_shapes(draw: st.DrawFn, op_type: str) -> Case:
    shape = known(draw(shapes(1, 3)))
    return case(op_type, shape, shape)


CASES = {
    "Const": const(),
    **{op_type: of_a_shape(op_type) for op_type in ("Shape", "Size", "Rank")},
    "ShapeN": shape_n(),
    "Range": counts.map(lambda end: case("Range", known(0), known(end), known(1))),
    "LinSpace": counts.map(
        lambda count: case("LinSpace", known(0, "float64"), known(1, "float64"), known(count))
    ),
    "InvertPermutation": st.permutations(range(4)).map(
        lambda order: case("InvertPermutation", known(order))
    ),
    "ConcatOffset": concat_offset(),
    **{op_type: two_shapes(op_type) for op_type in ("BroadcastArgs", "BroadcastGradientArgs")},
}
