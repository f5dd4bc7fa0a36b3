"""Other shapes and orders of axes: groups of axes merged and divided, and axes of size 1."""

import math
from itertools import pairwise

from hypothesis import strategies as st
from sharding_ops import Case, Known, case, known
from sharding_tensors import shapes, tensors

indices = st.sampled_from(("int32", "int64"))


@st.composite
def reshape(draw: st.DrawFn) -> Case:
    factors = draw(st.lists(st.integers(1, 4), max_size=5))
    source, target = draw(_merged(factors)), list(draw(_merged(factors)))
    if target and draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    return case("Reshape", draw(tensors(source)), known(target, draw(indices)))


@st.composite
def _merged(draw: st.DrawFn, factors: list[int]) -> tuple[int, ...]:
    """Draw a shape whose sizes are products of successive factors."""
    cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=5)))
    ends = [0, *cuts, len(factors)]
    return tuple(math.prod(factors[start:end]) for start, end in pairwise(ends))


@st.composite
def squeeze(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    chosen = draw(st.sets(st.sampled_from(ones))) if ones else ()
    axes = [axis - draw(st.sampled_from((0, len(shape)))) for axis in chosen]
    return case("Squeeze", draw(tensors(shape)), squeeze_dims=axes)


@st.composite
def expand_dims(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    return case("ExpandDims", draw(tensors(shape)), known(axis, draw(indices)))


@st.composite
def transpose(draw: st.DrawFn, op_type: str) -> Case:
    shape = draw(shapes())
    order = draw(st.permutations(range(len(shape))))
    return case(op_type, draw(tensors(shape)), known(order, draw(indices)))


@st.composite
def tile(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    counts = [draw(st.integers(1, 3)) for _ in shape]
    return case("Tile", draw(tensors(shape)), known(counts, draw(indices)))


@st.composite
def broadcast_to(draw: st.DrawFn) -> Case:
    target = draw(shapes())
    source = [draw(st.sampled_from((size, 1))) for size in target[draw(st.integers(0, 2)) :]]
    return case("BroadcastTo", draw(tensors(tuple(source))), known(target, draw(indices)))


@st.composite
def fill(draw: st.DrawFn) -> Case:
    value = draw(tensors(()))
    shape = known(draw(shapes()), draw(indices))
    return case("Fill", shape, draw(st.sampled_from((value, Known(value)))))


@st.composite
def ensure_shape(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    stated = [draw(st.sampled_from((size, None))) for size in shape]
    return case("EnsureShape", draw(tensors(shape)), shape=stated)


CASES = {
    "Reshape": reshape(),
    "Squeeze": squeeze(),
    "ExpandDims": expand_dims(),
    "Transpose": transpose("Transpose"),
    "ConjugateTranspose": transpose("ConjugateTranspose"),
    "Tile": tile(),
    "BroadcastTo": broadcast_to(),
    "Fill": fill(),
    "EnsureShape": ensure_shape(),
}
