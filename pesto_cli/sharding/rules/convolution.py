"""Convolutions and their gradients, with two or three spatial axes.

A convolution takes images `[N, ..., C]` and a filter `[..., C / groups, O]`; results are
`[N, ..., O]`. A depthwise one takes a filter `[..., C, M]`; results are `[N, ..., C * M]`. The
axes of the factors:

| factor | images | filter | results |
|---|---|---|---|
| batch | N | | N |
| out channels (one group) | | O | O |
| in channels (one group) | C | C | |
| groups (two-dimensional) | C | O | O |
| channels (depthwise) | C | C | C * M |

A gradient has the same factors: it computes images or a filter from the two other tensors. What is
computed is partial for a factor that it does not have. Spatial axes stay whole: windows overlap.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import SUM, WHOLE, Layout, Split
from pesto_cli.sharding.rules.data_format import BATCH, channel_axis


class _Role(Enum):
    """What an operand is. SIZES: a constant with the sizes of the output."""

    IMAGES, FILTER, RESULTS, SIZES = range(4)


_IMAGES, _FILTER, _RESULTS, _SIZES = _Role
_Operands = Mapping[_Role, Operand]


@dataclass(frozen=True)
class _Factor:
    """A dimension of the loop nest: its extent, and its axis in each tensor that has it."""

    name: str
    size: int
    axes: Mapping[_Role, int]


_Factors = Callable[[OpSpec, _Operands], Iterator[_Factor]]
"""Returns the factors of a convolution and of its gradients."""


def _convolution(spec: OpSpec, operands: _Operands) -> Iterator[_Factor]:
    images, kernel = operands[_IMAGES].sizes, operands[_FILTER].sizes
    yield _batch(images)
    channel, (into, out) = channel_axis(spec, len(images)), (len(kernel) - 2, len(kernel) - 1)
    if channel is None:
        return
    num_in, num_groups = images[channel], images[channel] // max(1, kernel[into])
    if num_groups == 1:
        yield _Factor("out channels", kernel[out], {_FILTER: out, _RESULTS: channel})
        yield _Factor("in channels", num_in, {_IMAGES: channel, _FILTER: into})
    elif len(images) == 4:
        axes = {_IMAGES: channel, _FILTER: out, _RESULTS: channel}
        yield _Factor("groups", num_groups, axes)


def _depthwise(spec: OpSpec, operands: _Operands) -> Iterator[_Factor]:
    images, kernel = operands[_IMAGES].sizes, operands[_FILTER].sizes
    yield _batch(images)
    channel = channel_axis(spec, len(images))
    if channel is not None:
        axes = {_IMAGES: channel, _FILTER: len(kernel) - 2, _RESULTS: channel}
        yield _Factor("channels", images[channel], axes)


def _batch(images: tuple[int, ...]) -> _Factor:
    return _Factor("batch", images[BATCH], {_IMAGES: BATCH, _RESULTS: BATCH})


def _split(factors: _Factors, roles: tuple[_Role, ...], spec: OpSpec) -> Iterator[Alternative]:
    """Factors: batch, in channels, out channels; groups, if there are several.

    A depthwise convolution has the factors batch and channels. What is computed is partial for a
    factor that it does not have. `roles` are those of the inputs, and then of the output.
    """
    *inputs, output = roles
    operands = dict(zip(roles, (*spec.inputs, *spec.outputs), strict=True))
    for factor in factors(spec, operands):
        layouts = tuple(_layout(factor, role) for role in inputs)
        if output not in factor.axes:
            yield Alternative(factor.name, factor.size, layouts, (SUM,))
            continue
        axis = factor.axes[output]
        all_sizes = (len(spec.outputs[0].sizes),)
        resized = tuple(
            (slot, axis)
            for slot, role in enumerate(inputs)
            if role is _SIZES and spec.inputs[slot].sizes == all_sizes  # not height and width alone
        )
        yield Alternative(factor.name, factor.size, layouts, (Split(axis),), resized)


def _layout(factor: _Factor, role: _Role) -> Layout:
    return Split(factor.axes[role]) if role in factor.axes else WHOLE


def _rules(factors: _Factors, forward: str, of_images: str, of_filter: str) -> dict[str, Rule]:
    return {
        forward: partial(_split, factors, (_IMAGES, _FILTER, _RESULTS)),
        of_images: partial(_split, factors, (_SIZES, _FILTER, _RESULTS, _IMAGES)),
        of_filter: partial(_split, factors, (_IMAGES, _SIZES, _RESULTS, _FILTER)),
    }


RULES: dict[str, Rule] = {
    **_rules(_convolution, "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
    **_rules(_convolution, "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
    **_rules(
        _depthwise,
        "DepthwiseConv2dNative",
        "DepthwiseConv2dNativeBackpropInput",
        "DepthwiseConv2dNativeBackpropFilter",
    ),
}
