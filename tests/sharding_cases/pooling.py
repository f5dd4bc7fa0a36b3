"""Pooling and its gradients, with two and three spatial axes, and over channels."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from sharding_ops import Array, Case, case, computed, known, spec_of
from sharding_tensors import tensors

from sharding_cases.convolution import FORMATS, images


@st.composite
def pooling(draw: st.DrawFn, op_type: str) -> Case:
    num_axes, dtype = (3, "float32") if "3D" in op_type else (2, "float64")
    data_format = draw(st.sampled_from(FORMATS[num_axes]))
    shape = draw(_sizes(num_axes, data_format, st.integers(3, 5), st.integers(1, 4)))
    window = draw(_sizes(num_axes, data_format, st.integers(1, 3), st.just(1)))
    strides = draw(_sizes(num_axes, data_format, st.integers(1, 2), st.just(1)))
    attributes: dict[str, Any] = {
        "padding": draw(st.sampled_from(("SAME", "VALID"))),
        "data_format": data_format,
    }
    by_input = op_type in ("MaxPoolV2", "MaxPoolGradV2", "MaxPoolGradGradV2")
    windows = [known(window), known(strides)] if by_input else []
    if not by_input:
        attributes |= {"ksize": window, "strides": strides}
    forward = op_type.split("Grad")[0] + ("V2" if by_input and "Grad" in op_type else "")
    whole = draw(tensors(shape, dtype))
    results = _shape(spec_of(forward, whole, *windows, **attributes))
    if "Grad" not in op_type:
        return case(op_type, whole, *windows, **attributes)
    if op_type.startswith("Avg"):
        return case(op_type, known(shape), draw(tensors(results, dtype)), **attributes)
    pooled = _pooled(forward, whole, windows, attributes)
    gradient = draw(tensors(shape if "GradGrad" in op_type else results, dtype))
    return case(op_type, whole, pooled, gradient, *windows, **attributes)


@st.composite
def _sizes(
    draw: st.DrawFn,
    num_axes: int,
    data_format: str,
    spatial: SearchStrategy[int],
    others: SearchStrategy[int],
) -> tuple[int, ...]:
    """Draw the sizes of the axes of images or of a window."""
    extents = tuple(draw(spatial) for _ in range(num_axes))
    return images(draw(others), extents, draw(others), data_format)


def _shape(spec: Any) -> tuple[int, ...]:
    return spec.outputs[0].sizes


def _pooled(forward: str, whole: Array, windows: list[Any], attributes: dict[str, Any]) -> Array:
    given = case(forward, whole, *windows, **attributes)
    return computed(given.spec, given.inputs)[0]


_TYPES = """
    AvgPool AvgPoolGrad AvgPool3D AvgPool3DGrad MaxPool MaxPoolGrad MaxPoolGradGrad MaxPoolV2
    MaxPoolGradV2 MaxPoolGradGradV2 MaxPool3D MaxPool3DGrad MaxPool3DGradGrad
"""
CASES = {op_type: pooling(op_type) for op_type in _TYPES.split()}
