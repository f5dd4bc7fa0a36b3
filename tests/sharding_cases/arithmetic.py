"""Linear elementwise ops: terms and factors with broadcasting; open sums."""

from hypothesis import strategies as st
from sharding_ops import Case, case
from sharding_tensors import shapes, tensors

from sharding_cases.elementwise import binary

FLOATS = ["float64", "float32", "float16"]


@st.composite
def add_n(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    return case("AddN", [draw(tensors(shape)) for _ in range(draw(st.integers(1, 4)))])


@st.composite
def bias_add(draw: st.DrawFn) -> Case:
    data_format = draw(st.sampled_from(("NHWC", "NCHW")))
    shape = draw(shapes(min_rank=3 if data_format == "NCHW" else 2))
    channels = shape[1] if data_format == "NCHW" else shape[-1]
    inputs = draw(tensors(shape)), draw(tensors((channels,)))
    return case("BiasAdd", *inputs, data_format=data_format)


@st.composite
def cast(draw: st.DrawFn) -> Case:
    source, target = draw(st.permutations([*FLOATS[:2], "int32", "bool"]))[:2]
    return case("Cast", draw(tensors(draw(shapes()), source)), DstT=target)


CASES = {
    **{op_type: binary(op_type) for op_type in ("Add", "AddV2", "Sub", "Mul")},
    "RealDiv": binary("RealDiv", low=0.5),
    "AddN": add_n(),
    "BiasAdd": bias_add(),
    "Cast": cast(),
}
