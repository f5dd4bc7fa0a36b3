"""Elementwise ops: operands of one shape, broadcast in both directions, and scalars."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from sharding_ops import Array, Case, Known, case
from sharding_tensors import shapes, tensors

from pesto_cli.sharding.rules import elementwise

_BINARY = elementwise.BINARY.split()
_GRADIENTS = [name for name in elementwise.RULES if name.endswith("Grad")]


@st.composite
def unary(draw: st.DrawFn, op_type: str, dtype: str = "float64", **attributes: Any) -> Case:
    return case(op_type, draw(shapes().flatmap(lambda shape: tensors(shape, dtype))), **attributes)


@st.composite
def of_complex_numbers(draw: st.DrawFn, op_type: str) -> Case:
    shape = draw(shapes())
    real, imaginary = draw(tensors(shape, "float32")), draw(tensors(shape, "float32"))
    return case(op_type, (real + 1j * imaginary).astype("complex64"))


@st.composite
def same_shapes(draw: st.DrawFn, op_type: str, dtype: str = "float64") -> Case:
    shape = draw(shapes())
    return case(op_type, draw(tensors(shape, dtype)), draw(tensors(shape, dtype)))


@st.composite
def binary(draw: st.DrawFn, op_type: str, dtype: str = "float64", low: float = -3) -> Case:
    first, second = draw(broadcast(2))
    return case(
        op_type,
        draw(tensors(first, dtype, low)),
        draw(known_or_not(tensors(second, dtype, low))),
    )


@st.composite
def broadcast(draw: st.DrawFn, count: int) -> list[tuple[int, ...]]:
    """Draw shapes that can be broadcast together: each without leading axes, or with ones."""
    full = draw(shapes())
    return [
        tuple(draw(st.sampled_from((size, size, 1))) for size in full[draw(st.integers(0, 2)) :])
        for _ in range(count)
    ]


@st.composite
def known_or_not(draw: st.DrawFn, arrays: SearchStrategy[Array]) -> Array | Known:
    """Draw a tensor; if it is small, it may be a constant that the spec states."""
    array = draw(arrays)
    return Known(array) if array.size <= 16 and draw(st.booleans()) else array


@st.composite
def selected(draw: st.DrawFn) -> Case:
    condition, first, second = draw(broadcast(3))
    arrays = draw(tensors(condition, "bool")), draw(tensors(first)), draw(tensors(second))
    return case("SelectV2", *arrays)


@st.composite
def clipped(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    limits = [draw(known_or_not(tensors((), low=bound, high=bound + 1))) for bound in (-2, 1)]
    return case("ClipByValue", draw(tensors(shape)), *limits)


@st.composite
def quantised(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    limits = [draw(known_or_not(tensors((), "float32", low, low + 1))) for low in (-2, 1)]
    return case("FakeQuantWithMinMaxVars", draw(tensors(shape, "float32")), *limits)


@st.composite
def identities(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    chosen = [shape, *draw(st.lists(st.one_of(st.just(shape), shapes()), max_size=2))]
    return case("IdentityN", [draw(tensors(each)) for each in chosen])


def _case_of(op_type: str) -> SearchStrategy[Case]:
    if op_type in _GRADIENTS:
        return same_shapes(op_type)
    if op_type in elementwise.COMPLEX.split():
        return of_complex_numbers(op_type)
    if op_type in _BINARY:
        return binary(op_type, _dtype_of(op_type))
    return unary(op_type, _dtype_of(op_type))


def _dtype_of(op_type: str) -> str:
    if op_type.startswith("Logical"):
        return "bool"
    return "int32" if op_type.startswith(("Bitwise", "Invert")) else "float64"


_OWN: dict[str, Callable[[], SearchStrategy[Case]]] = {
    "ClipByValue": clipped,
    "IdentityN": identities,
    "SelectV2": selected,
    "CheckNumerics": lambda: unary("CheckNumerics", message="not a number"),
    "Complex": lambda: binary("Complex", "float32"),
    "Mod": lambda: binary("Mod", low=0.5),
    "ApproximateEqual": lambda: same_shapes("ApproximateEqual"),
    "FakeQuantWithMinMaxArgs": lambda: unary("FakeQuantWithMinMaxArgs", "float32"),
    "FakeQuantWithMinMaxArgsGradient": lambda: same_shapes(
        "FakeQuantWithMinMaxArgsGradient", dtype="float32"
    ),
    "FakeQuantWithMinMaxVars": quantised,
    **{
        op_type: partial(binary, op_type, low=0.5)
        for op_type in ("Igamma", "Igammac", "IgammaGradA", "Polygamma", "Zeta")
    },
    **{
        op_type: partial(binary, op_type, "int32", low=0) for op_type in ("LeftShift", "RightShift")
    },
}
CASES = {
    op_type: _OWN[op_type]() if op_type in _OWN else _case_of(op_type)
    for op_type in elementwise.RULES
}
