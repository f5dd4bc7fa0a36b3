"""Sums, means and extrema of segments: of gathered rows, with unsorted ids, and gradients."""

import numpy as np
from hypothesis import strategies as st
from sharding_ops import Array, Case, case, known
from sharding_tensors import shapes, sizes, tensors

from pesto_cli.sharding.rules import segments


@st.composite
def gathered(draw: st.DrawFn, op_type: str) -> Case:
    rows, count, features = draw(sizes), draw(sizes), draw(shapes(max_rank=2))
    data, ids = draw(tensors((rows, *features))), np.sort(draw(_ids((count,), 4)))
    return case(op_type, data, draw(_ids((count,), rows)), ids, known(4))


@st.composite
def gradient(draw: st.DrawFn, op_type: str) -> Case:
    num_segments, count, rows = draw(sizes), draw(sizes), draw(sizes)
    data = draw(tensors((num_segments, *draw(shapes(max_rank=2)))))
    ids = np.sort(draw(_ids((count,), num_segments)))
    return case(op_type, data, draw(_ids((count,), rows)), ids, known(rows))


@st.composite
def unsorted(draw: st.DrawFn, op_type: str) -> Case:
    rows = draw(shapes(max_rank=2))
    data = draw(tensors((*rows, *draw(shapes(max_rank=2)))))
    return case(op_type, data, draw(_ids(rows, 4)), known(4))


@st.composite
def _ids(draw: st.DrawFn, shape: tuple[int, ...], num_ids: int) -> Array:
    return draw(tensors(shape, "int32", 0, num_ids - 1))


def _case_of(op_type: str) -> st.SearchStrategy[Case]:
    if op_type.startswith("Unsorted"):
        return unsorted(op_type)
    return gradient(op_type) if op_type.endswith("Grad") else gathered(op_type)


CASES = {op_type: _case_of(op_type) for op_type in segments.RULES}
