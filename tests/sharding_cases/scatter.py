"""Scatters of slices, with indices that name the same place more than once."""

import numpy as np
from hypothesis import strategies as st
from sharding_ops import Array, Case, case, known
from sharding_tensors import shapes, tensors

from pesto_cli.sharding.rules import scatter


@st.composite
def scatter_nd(draw: st.DrawFn) -> Case:
    shape, indices, updates = draw(slices())
    return case("ScatterNd", indices, updates, known(shape))


@st.composite
def into_tensor(draw: st.DrawFn, op_type: str) -> Case:
    shape, indices, updates = draw(slices())
    if op_type == "TensorScatterUpdate":  # What is written twice is not defined.
        indices, updates = indices.reshape(-1, indices.shape[-1])[:1], _first(indices, updates)
    return case(op_type, draw(tensors(shape)), indices, updates)


def _first(indices: Array, updates: Array) -> Array:
    num_leading = indices.ndim - 1
    return updates.reshape(-1, *updates.shape[num_leading:])[:1]


@st.composite
def slices(draw: st.DrawFn) -> tuple[tuple[int, ...], Array, Array]:
    """Draw the shape of a tensor, indices and updates."""
    shape = draw(shapes(min_rank=1, max_rank=3))
    num_indexed = draw(st.integers(1, len(shape)))
    leading = draw(shapes(min_rank=1, max_rank=2))
    columns = [draw(tensors(leading, "int32", 0, size - 1)) for size in shape[:num_indexed]]
    updates = draw(tensors((*leading, *shape[num_indexed:])))
    return shape, np.stack(columns, -1), updates


CASES = {
    "ScatterNd": scatter_nd(),
    **{op_type: into_tensor(op_type) for op_type in scatter.RULES if op_type != "ScatterNd"},
}
