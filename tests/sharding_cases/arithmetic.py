"""Factors and quotients with broadcasting; casts between floats, integers and booleans."""

from hypothesis import strategies as st
from sharding_ops import Case, case
from sharding_tensors import shapes, tensors

from sharding_cases.elementwise import binary

TYPES = ["float64", "float32", "float16", "bfloat16", "int32", "bool"]


@st.composite
def cast(draw: st.DrawFn) -> Case:
    source, target = draw(st.permutations(TYPES))[:2]
    return case("Cast", draw(tensors(draw(shapes()), source)), DstT=target)


CASES = {
    "Mul": binary("Mul"),
    "RealDiv": binary("RealDiv", low=0.5),
    "Cast": cast(),
}
