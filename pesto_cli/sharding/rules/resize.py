"""Resizing of images `[N, height, width, C]`, and its gradients. Factors: batch and channels."""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import WHOLE, Split
from pesto_cli.sharding.rules.data_format import BATCH

_TYPES = """
    ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad
    ResizeNearestNeighbor ResizeNearestNeighborGrad
"""
_CHANNELS = 3


def resize(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: batch, channels. The constant with height and width is whole."""
    for name, axis in ("batch", BATCH), ("channels", _CHANNELS):
        split = Split(axis)
        inputs = tuple(split if len(operand.sizes) > 1 else WHOLE for operand in spec.inputs)
        yield Alternative(name, spec.outputs[0].sizes[axis], inputs, (split,))


RULES: dict[str, Rule] = dict.fromkeys(_TYPES.split(), resize)
