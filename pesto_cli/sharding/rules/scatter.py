"""Scatters of slices to places in a tensor that indices name.

Indices are `[..., K]`: each names one slice by its place on the first K axes of the tensor. Updates
have the leading axes of the indices, and then those of a slice.

Factors: the axes of a slice. ScatterNd adds slices to zeros, so the leading axes of indices and
updates may be split too; results are partial then.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import SUM, WHOLE, Split
from pesto_cli.sharding.rules.open_sums import NUMBERS

_INTO_TENSOR = """
    TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
"""


def scatter_nd(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs: indices, updates, shape. Factors: the axes of a slice and those of the indices."""
    indices, updates, _ = spec.inputs
    for update, axis, size in _slice_axes(indices, updates):
        inputs = (WHOLE, Split(update), WHOLE)
        yield Alternative(f"slice {axis}", size, inputs, (Split(axis),), resized=((2, axis),))
    for axis, size in enumerate(indices.sizes[:-1] if updates.dtype in NUMBERS else ()):
        yield Alternative(f"index {axis}", size, (Split(axis), Split(axis), WHOLE), (SUM,))


def scatter_into_tensor(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs: tensor, indices, updates. Factors: the axes of a slice."""
    _, indices, updates = spec.inputs
    for update, axis, size in _slice_axes(indices, updates):
        yield Alternative(
            f"slice {axis}", size, (Split(axis), WHOLE, Split(update)), (Split(axis),)
        )


def _slice_axes(indices: Operand, updates: Operand) -> Iterator[tuple[int, int, int]]:
    """Yield each axis of a slice: its number in the updates and in the tensor, and its size."""
    *leading, num_indexed = indices.sizes
    for axis in range(len(leading), len(updates.sizes)):
        yield axis, axis - len(leading) + num_indexed, updates.sizes[axis]


RULES: dict[str, Rule] = {
    "ScatterNd": scatter_nd,
    **dict.fromkeys(_INTO_TENSOR.split(), scatter_into_tensor),
}
