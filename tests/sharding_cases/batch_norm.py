"""Batch normalisation and its gradient: for training and not, formats, types, moving averages."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from sharding_ops import Array, Case, case, computed
from sharding_tensors import sizes, tensors

from sharding_cases.convolution import FORMATS, images


@st.composite
def normalisation(draw: st.DrawFn, op_type: str) -> Case:
    x, attributes = draw(given(op_type))
    channels = _channels(x, attributes)
    factor = draw(st.sampled_from((1.0, 1.0, 0.1, 0.0)))
    inputs = (x, *draw(vectors(channels)), *draw(vectors(channels)))
    whole = case(op_type, *inputs, exponential_avg_factor=factor, **attributes)
    # The third reserve space is scratch memory; only a training step writes the others.
    return replace(whole, num_defined=5 if attributes["is_training"] else 3)


@st.composite
def gradient(draw: st.DrawFn, op_type: str) -> Case:
    x, attributes = draw(given(op_type))
    scale, offset = draw(vectors(_channels(x, attributes)))
    mean, variance = np.zeros_like(scale), np.ones_like(scale)
    if attributes["is_training"]:
        forward = op_type.replace("Grad", "")
        op = case(forward, x, scale, offset, mean, variance, **attributes)
        reserved = computed(op.spec, op.inputs)[3:]
    else:
        reserved = [mean, variance, np.zeros(0, "float32")][: 3 if op_type.endswith("3") else 2]
    whole = case(op_type, draw(_numbers(x)), x, scale, *reserved, **attributes)
    return replace(whole, num_defined=3)  # The others are empty.


@st.composite
def given(draw: st.DrawFn, op_type: str) -> tuple[Array, dict[str, Any]]:
    """Draw images, far from 0 too, and attributes."""
    num_axes = draw(st.sampled_from((2, 2, 3))) if op_type.endswith("V3") else 2
    data_format = draw(st.sampled_from(FORMATS[num_axes]))
    batch, channels = draw(st.integers(2, 6)), draw(sizes)
    extents = tuple(draw(st.integers(1, 3)) for _ in range(num_axes))
    dtype = draw(st.sampled_from(("float32", "float32", "float16")))
    low = draw(st.sampled_from((-3, 50))) if dtype == "float32" else -3
    x = draw(
        tensors(
            images(batch, extents, channels, data_format),
            dtype if op_type[-2:] in ("V2", "V3") else "float32",
            low,
            low + 6,
        )
    )
    is_training = draw(st.sampled_from((True, True, False)))
    return x, {"is_training": is_training, "data_format": data_format, "epsilon": 1e-3}


@st.composite
def vectors(draw: st.DrawFn, channels: int) -> tuple[Array, Array]:
    """Draw two vectors of positive numbers."""
    first, second = (draw(tensors((channels,), "float32", 0.5, 2)) for _ in range(2))
    return first, second


def _numbers(x: Array) -> st.SearchStrategy[Array]:
    return tensors(x.shape, x.dtype.name)


def _channels(x: Array, attributes: dict[str, Any]) -> int:
    return x.shape[-1 if attributes["data_format"].endswith("C") else 1]


_VERSIONS = ("", "V2", "V3")
CASES = {
    **{
        f"FusedBatchNorm{version}": normalisation(f"FusedBatchNorm{version}")
        for version in _VERSIONS
    },
    **{
        f"FusedBatchNormGrad{version}": gradient(f"FusedBatchNormGrad{version}")
        for version in _VERSIONS
    },
}
