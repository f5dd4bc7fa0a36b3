"""Blocks of pixels that become channels or batches, as in sub-pixel and dilated convolutions.

All of these ops only move numbers, or add zeros, so a sum of the input stays open.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import Split
from pesto_cli.sharding.rules.axes import along
from pesto_cli.sharding.rules.data_format import BATCH
from pesto_cli.sharding.rules.open_sums import open_sum


def space_and_depth(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the batch. Linear."""
    split = (Split(BATCH),)
    yield Alternative("batch", spec.outputs[0].sizes[BATCH], split, split)
    yield from open_sum(spec, 0)


def space_and_batch(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the axes after the spatial ones, of which input 1 has the block. Linear."""
    (num_spatial,) = spec.inputs[1].sizes
    for axis in range(1 + num_spatial, len(spec.outputs[0].sizes)):
        yield along(spec, axis, {0: axis})
    yield from open_sum(spec, 0)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), space_and_depth),
    **dict.fromkeys(("BatchToSpaceND", "SpaceToBatchND"), space_and_batch),
}
