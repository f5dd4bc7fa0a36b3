"""Lookups: any axis, batch dimensions, handles of variables."""

from hypothesis import strategies as st
from sharding_ops import Array, Case, Variable, case, known
from sharding_tensors import shapes, sizes, tensors

index_types = st.sampled_from(("int32", "int64"))


@st.composite
def gather_v2(draw: st.DrawFn) -> Case:
    batch = draw(shapes(max_rank=2))
    between, after = draw(shapes(max_rank=1)), draw(shapes(max_rank=1))
    table = (*batch, *between, draw(sizes), *after)
    rows = (*batch, *draw(shapes(min_rank=1, max_rank=2)))
    axis = len(batch) + len(between)
    batch_dims = len(batch) - draw(st.sampled_from((0, len(rows))))
    return case(
        "GatherV2",
        draw(tensors(table)),
        draw(_indices(rows, table[axis])),
        known(axis - draw(st.sampled_from((0, len(table))))),
        batch_dims=batch_dims,
    )


@st.composite
def gather_v1(draw: st.DrawFn) -> Case:
    table = draw(shapes(min_rank=1))
    rows = draw(_indices(draw(shapes(max_rank=3)), table[0]))
    return case("Gather", draw(tensors(table)), rows)


@st.composite
def resource_gather(draw: st.DrawFn) -> Case:
    batch = draw(shapes(max_rank=1))
    table = (*batch, draw(sizes), *draw(shapes(max_rank=2)))
    rows = draw(_indices((*batch, *draw(shapes(max_rank=2))), table[len(batch)]))
    handle = Variable(draw(tensors(table)))
    return case("ResourceGather", handle, rows, dtype="float64", batch_dims=len(batch))


@st.composite
def gather_nd(draw: st.DrawFn) -> Case:
    table = draw(shapes(min_rank=1))
    depth = draw(st.integers(0, len(table)))
    indices = draw(_indices((*draw(shapes(max_rank=2)), depth), min(table)))
    return case("GatherNd", draw(tensors(table)), indices)


@st.composite
def one_hot(draw: st.DrawFn) -> Case:
    shape = draw(shapes(max_rank=3))
    values = [draw(tensors(())) for _ in range(2)]
    return case(
        "OneHot",
        draw(_indices(shape, 4)),
        known(draw(st.integers(1, 5))),
        *values,
        axis=draw(st.integers(-1, len(shape))),
    )


@st.composite
def _indices(draw: st.DrawFn, shape: tuple[int, ...], count: int) -> Array:
    return draw(tensors(shape, draw(index_types), 0, count - 1))


CASES = {
    "Gather": gather_v1(),
    "GatherV2": gather_v2(),
    "ResourceGather": resource_gather(),
    "GatherNd": gather_nd(),
    "OneHot": one_hot(),
}
