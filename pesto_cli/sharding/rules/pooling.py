"""Pooling and its gradients, with two or three spatial axes.

Factors: batch and channels, unless a window extends over them. All images are split; shapes and
windows, which have one axis, are whole. Spatial axes stay whole, because windows overlap.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import Operand, OpSpec, Value
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import WHOLE, Layout, Split
from pesto_cli.sharding.rules.data_format import BATCH, channel_axis

_POOLING = """
    AvgPool AvgPool3D MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad
"""
_WINDOW_IN_INPUTS = "MaxPoolV2 MaxPoolGradV2 MaxPoolGradGradV2"
_SHAPE_IN_INPUT = "AvgPoolGrad AvgPool3DGrad"  # the shape of the output is input 0


def pooling(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: batch, channels. The window is the attribute `ksize`."""
    yield from _split(spec, spec.attribute["ksize"])


def pooling_by_input(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: batch, channels. The window is the input before the last one, the strides."""
    yield from _split(spec, spec.inputs[-2].value)


def gradient_of_average(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: batch, channels. Input 0 is the shape of the output."""
    yield from _split(spec, spec.attribute["ksize"], shape_slot=0)


def _split(
    spec: OpSpec, window: Value | None, shape_slot: int | None = None
) -> Iterator[Alternative]:
    output = spec.outputs[0].sizes
    for name, axis in ("batch", BATCH), ("channels", channel_axis(spec, len(output))):
        if axis is None or not isinstance(window, tuple) or window[axis] != 1:
            continue
        inputs = tuple(_layout(operand, axis) for operand in spec.inputs)
        resized = () if shape_slot is None else ((shape_slot, axis),)
        yield Alternative(name, output[axis], inputs, (Split(axis),), resized)


def _layout(operand: Operand, axis: int) -> Layout:
    return Split(axis) if len(operand.sizes) > 1 else WHOLE


RULES: dict[str, Rule] = {
    **dict.fromkeys(_POOLING.split(), pooling),
    **dict.fromkeys(_WINDOW_IN_INPUTS.split(), pooling_by_input),
    **dict.fromkeys(_SHAPE_IN_INPUT.split(), gradient_of_average),
}
