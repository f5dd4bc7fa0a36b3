"""Reductions: any set of axes, negative ones too, no axes, a scalar axis, kept dimensions."""

from hypothesis import strategies as st
from sharding_ops import Case, Known, case, known
from sharding_tensors import shapes, tensors


@st.composite
def reduction(draw: st.DrawFn, op_type: str, dtype: str = "float64") -> Case:
    shape = draw(shapes(min_rank=1))
    axes = draw(_axes(len(shape)))
    return case(op_type, draw(tensors(shape, dtype)), axes, keep_dims=draw(st.booleans()))


@st.composite
def _axes(draw: st.DrawFn, rank: int) -> Known:
    index_type = draw(st.sampled_from(("int32", "int64")))
    if draw(st.integers(0, 4)) == 0:
        return known(draw(st.integers(-rank, rank - 1)), index_type)
    axes = draw(st.sets(st.integers(0, rank - 1)))
    return known([axis - draw(st.sampled_from((0, rank))) for axis in axes], index_type)


@st.composite
def arg(draw: st.DrawFn, op_type: str) -> Case:
    shape = draw(shapes(min_rank=1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return case(op_type, draw(tensors(shape)), known(axis))


@st.composite
def l2_loss(draw: st.DrawFn) -> Case:
    return case("L2Loss", draw(tensors(draw(shapes()))))


@st.composite
def bias_add_grad(draw: st.DrawFn) -> Case:
    data_format = draw(st.sampled_from(("NHWC", "NCHW")))
    gradient = draw(tensors(draw(shapes(min_rank=3 if data_format == "NCHW" else 2))))
    return case("BiasAddGrad", gradient, data_format=data_format)


_TYPES = {"All": ("bool",), "Any": ("bool",), "Mean": ("float64", "float32", "int32")}

CASES = {
    **{
        name: st.sampled_from(_TYPES.get(name, ("float64",))).flatmap(
            lambda dtype, name=name: reduction(name, dtype)
        )
        for name in ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "EuclideanNorm")
    },
    "ArgMax": arg("ArgMax"),
    "ArgMin": arg("ArgMin"),
    "L2Loss": l2_loss(),
    "BiasAddGrad": bias_add_grad(),
}
