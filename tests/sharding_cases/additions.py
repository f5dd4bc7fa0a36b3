"""Terms with broadcasting, several terms, and terms of one shape; biases of channels."""

from hypothesis import strategies as st
from sharding_ops import Case, case
from sharding_tensors import shapes, tensors

from sharding_cases.elementwise import binary, same_shapes


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


CASES = {
    **{
        op_type: st.one_of(binary(op_type), same_shapes(op_type))
        for op_type in ("Add", "AddV2", "Sub")
    },
    "AddN": add_n(),
    "BiasAdd": bias_add(),
}
