"""Blocks of pixels that become channels or batches, and the other way round."""

import math

from hypothesis import strategies as st
from sharding_ops import Case, case, known
from sharding_tensors import shapes, sizes, tensors


@st.composite
def space_and_depth(draw: st.DrawFn, op_type: str) -> Case:
    batch, height, width, channels = (draw(sizes) for _ in range(4))
    block = draw(st.integers(2, 3))
    if op_type == "SpaceToDepth":
        shape = batch, height * block, width * block, channels
    else:
        shape = batch, height, width, channels * block**2
    return case(op_type, draw(tensors(shape, "float32")), block_size=block)


@st.composite
def space_and_batch(draw: st.DrawFn, op_type: str) -> Case:
    spatial, others = draw(shapes(1, 2)), draw(shapes(0, 2))
    block, batch = tuple(draw(st.integers(1, 3)) for _ in spatial), draw(sizes)
    borders = known([(0, 0)] * len(spatial))
    if op_type == "SpaceToBatchND":
        spatial = tuple(size * each for size, each in zip(spatial, block, strict=True))
    else:
        batch *= math.prod(block)
    return case(op_type, draw(tensors((batch, *spatial, *others))), known(block), borders)


CASES = {
    **{name: space_and_depth(name) for name in ("DepthToSpace", "SpaceToDepth")},
    **{name: space_and_batch(name) for name in ("BatchToSpaceND", "SpaceToBatchND")},
}
