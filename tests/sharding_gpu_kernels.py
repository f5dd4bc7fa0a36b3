"""Ops that TensorFlow computes on GPUs only, from ops with CPU kernels.

Ops on images with the channels first compute the same as those with the channels last do on
transposed images. The gradient of a grouped convolution is that of each group alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pesto_cli.data.specs import OpSpec

Array = np.ndarray
Run = Callable[[OpSpec, Sequence[Any]], list[Array]]

_CHANNELS_LAST = {"NCHW": "NHWC", "NCDHW": "NDHWC"}
_GRADIENTS = ("Conv2DBackpropInput", "Conv2DBackpropFilter")


def computed_by_others(spec: OpSpec, inputs: Sequence[Array], run: Run) -> list[Array] | None:
    """Return the outputs of an op without a CPU kernel; None if it has one.

    run: computes an op with its CPU kernel.
    """
    if spec.attribute.get("data_format") in _CHANNELS_LAST and not spec.type.startswith("Bias"):
        return _with_channels_first(spec, inputs, run)
    if spec.type in _GRADIENTS and _num_groups(spec, inputs) > 1:
        return [_by_groups(spec, inputs, run)]
    return None


def _with_channels_first(spec: OpSpec, inputs: Sequence[Array], run: Run) -> list[Array]:
    rank = len(spec.attribute["data_format"])  # type: ignore[arg-type]
    to_last = (0, *range(2, rank), 1)
    to_second = (0, rank - 1, *range(1, rank - 1))
    changed = {
        name: tuple(value[axis] for axis in to_last)
        for name, value in spec.attributes
        if name in ("strides", "dilations", "ksize") and isinstance(value, tuple)
    }
    last = _CHANNELS_LAST[str(spec.attribute["data_format"])]
    given = [_reordered(spec, slot, array, to_last) for slot, array in enumerate(inputs)]
    outputs = run(spec.with_attributes(**changed, data_format=last), given)
    has_images = not spec.type.endswith(("BackpropFilter", "BackpropFilterV2"))
    return [
        output.transpose(to_second) if output.ndim == rank and has_images else output
        for output in outputs
    ]


def _reordered(spec: OpSpec, slot: int, array: Array, axes: tuple[int, ...]) -> Array:
    """Return an image, or the sizes of its axes, with the channels last."""
    is_convolution = "Conv" in spec.type
    computes_filter = "BackpropFilter" in spec.type
    if is_convolution and slot == 1:  # A filter, or its shape.
        return array
    if array.ndim == len(axes):
        return array.transpose(axes)
    is_sizes = array.ndim == 1 and array.dtype == np.int32 and not computes_filter
    return array[list(axes)] if is_sizes else array


def _num_groups(spec: OpSpec, inputs: Sequence[Array]) -> int:
    if spec.type == "Conv2DBackpropInput":
        num_channels = inputs[0][3] if len(inputs[0]) == 4 else inputs[1].shape[2]
        return int(num_channels // inputs[1].shape[2])
    return int(inputs[0].shape[3] // inputs[1][2])


def _by_groups(spec: OpSpec, inputs: Sequence[Array], run: Run) -> Array:
    num_groups = _num_groups(spec, inputs)
    first, second, gradient = inputs
    gradients = np.split(gradient, num_groups, 3)
    if spec.type == "Conv2DBackpropInput":
        sizes = np.array([*first[:3], first[3] // num_groups], "int32")
        filters = np.split(second, num_groups, 3)
        given = [[sizes, *each] for each in zip(filters, gradients, strict=True)]
    else:
        sizes = np.array([*second[:3], second[3] // num_groups], "int32")
        images = np.split(first, num_groups, 3)
        given = [[image, sizes, each] for image, each in zip(images, gradients, strict=True)]
    return np.concatenate([run(spec, each)[0] for each in given], 3)
