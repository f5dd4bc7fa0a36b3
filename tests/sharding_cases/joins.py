"""Tensors joined and divided along any axis, given from the front or the back."""

from hypothesis import strategies as st
from sharding_ops import Array, Case, case, known
from sharding_tensors import shapes, sizes, tensors

counts = st.integers(1, 3)


@st.composite
def concat(draw: st.DrawFn, op_type: str) -> Case:
    shape = draw(shapes(min_rank=1))
    axis = draw(st.integers(0, len(shape) - 1))
    count = draw(st.integers(2, 4))
    parts = [draw(tensors((*shape[:axis], draw(sizes), *shape[axis + 1 :]))) for _ in range(count)]
    if op_type == "Concat":
        return case(op_type, known(axis), parts)
    return case(op_type, parts, known(axis - draw(st.sampled_from((0, len(shape))))))


@st.composite
def split(draw: st.DrawFn) -> Case:
    shape = draw(shapes(min_rank=1))
    axis, count = draw(st.integers(0, len(shape) - 1)), draw(counts)
    whole = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    given = known(axis - draw(st.sampled_from((0, len(shape)))))
    return case("Split", given, draw(tensors(whole)), num_split=count)


@st.composite
def split_v(draw: st.DrawFn) -> Case:
    shape = draw(shapes(min_rank=1))
    axis = draw(st.integers(0, len(shape) - 1))
    extents = draw(st.lists(sizes, min_size=1, max_size=3))
    whole = (*shape[:axis], sum(extents), *shape[axis + 1 :])
    given = known(axis - draw(st.sampled_from((0, len(shape)))))
    return case("SplitV", draw(tensors(whole)), known(extents), given, num_split=len(extents))


@st.composite
def pack(draw: st.DrawFn) -> Case:
    shape = draw(shapes(max_rank=3))
    parts: list[Array] = [draw(tensors(shape)) for _ in range(draw(counts))]
    return case("Pack", parts, axis=draw(st.integers(-len(shape) - 1, len(shape))))


@st.composite
def unpack(draw: st.DrawFn) -> Case:
    shape = draw(shapes(min_rank=1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return case("Unpack", draw(tensors(shape)), axis=axis, num=shape[axis])


CASES = {
    "Concat": concat("Concat"),
    "ConcatV2": concat("ConcatV2"),
    "Split": split(),
    "SplitV": split_v(),
    "Pack": pack(),
    "Unpack": unpack(),
}
