"""Convolutions and their gradients: strides, padding, dilation, groups, two and three axes."""

from dataclasses import dataclass

from hypothesis import strategies as st
from sharding_ops import Array, Case, case, known
from sharding_tensors import tensors

sizes = st.integers(1, 4)
FORMATS = {2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}


@dataclass(frozen=True)
class _Images:
    """What a convolution and its gradients share. shapes: of images, filter and results."""

    images: tuple[int, ...]
    kernel: tuple[int, ...]
    results: tuple[int, ...]
    attributes: dict[str, object]


@st.composite
def images_of(draw: st.DrawFn, op_type: str, num_axes: int) -> _Images:
    is_depthwise = op_type.startswith("Depthwise")
    num_groups = draw(st.sampled_from((1, 1, 2, 4))) if op_type in GROUPED else 1
    is_dilated = op_type == "Conv2D" and draw(st.booleans())  # Only Conv2D has such a CPU kernel.
    stride, dilation = (1, 2) if is_dilated else (draw(st.integers(1, 2)), 1)
    padding = draw(st.sampled_from(("SAME", "VALID")))
    window = tuple(draw(st.integers(1, 3)) for _ in range(num_axes))
    extents = tuple(draw(st.integers(5, 7)) for _ in range(num_axes))
    results = tuple(
        _extent(extent, size, stride, dilation, padding)
        for extent, size in zip(extents, window, strict=True)
    )
    batch, into, out = draw(sizes), draw(sizes), draw(sizes)
    num_results = into * out if is_depthwise else num_groups * out
    channels = into if is_depthwise else num_groups * into
    data_format = draw(st.sampled_from(FORMATS[num_axes]))
    return _Images(
        images(batch, extents, channels, data_format),
        (*window, into, out if is_depthwise else num_results),
        images(batch, results, num_results, data_format),
        {
            "strides": images(1, (stride,) * num_axes, 1, data_format),
            "dilations": images(1, (dilation,) * num_axes, 1, data_format),
            "padding": padding,
            "data_format": data_format,
        },
    )


def images(
    batch: int, extents: tuple[int, ...], channels: int, data_format: str
) -> tuple[int, ...]:
    """Return the sizes of the axes of images."""
    is_last = data_format.endswith("C")
    return (batch, *extents, channels) if is_last else (batch, channels, *extents)


def _extent(extent: int, window: int, stride: int, dilation: int, padding: str) -> int:
    covered = 0 if padding == "SAME" else (window - 1) * dilation
    return -(-(extent - covered) // stride)


@st.composite
def convolution(draw: st.DrawFn, op_type: str, num_axes: int, computed: str) -> Case:
    """computed: `results`, `images` or `kernel`; the others are inputs."""
    given = draw(images_of(op_type, num_axes))
    inputs: dict[str, Array] = {
        name: draw(tensors(getattr(given, name)))
        for name in ("images", "kernel", "results")
        if name != computed
    }
    if computed == "results":
        return case(op_type, inputs["images"], inputs["kernel"], **given.attributes)
    shape = known(getattr(given, computed))
    if computed == "images":
        return case(op_type, shape, inputs["kernel"], inputs["results"], **given.attributes)
    return case(op_type, inputs["images"], shape, inputs["results"], **given.attributes)


GROUPED = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
_OPS = {
    "Conv2D": (2, "results"),
    "Conv2DBackpropInput": (2, "images"),
    "Conv2DBackpropFilter": (2, "kernel"),
    "DepthwiseConv2dNative": (2, "results"),
    "DepthwiseConv2dNativeBackpropInput": (2, "images"),
    "DepthwiseConv2dNativeBackpropFilter": (2, "kernel"),
    "Conv3D": (3, "results"),
    "Conv3DBackpropInputV2": (3, "images"),
    "Conv3DBackpropFilterV2": (3, "kernel"),
}
CASES = {name: convolution(name, *kind) for name, kind in _OPS.items()}
