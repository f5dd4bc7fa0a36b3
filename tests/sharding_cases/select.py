"""Select with a condition that is a scalar, a vector, or as large as the output."""

from hypothesis import strategies as st
from sharding_ops import Case, case
from sharding_tensors import shapes, tensors


@st.composite
def select(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    condition = draw(st.sampled_from(((), shape[:1], shape)))
    arrays = [draw(tensors(shape)) for _ in range(2)]
    return case("Select", draw(tensors(condition, "bool")), *arrays)


CASES = {"Select": select()}
