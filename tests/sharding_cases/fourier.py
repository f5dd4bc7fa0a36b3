"""Fourier transforms of complex and real tensors, also cut to shorter ones."""

import numpy as np
from hypothesis import strategies as st
from sharding_ops import Case, case, known
from sharding_tensors import shapes, tensors

from pesto_cli.sharding.rules import fourier


@st.composite
def transformed(draw: st.DrawFn, op_type: str) -> Case:
    num_axes = int(op_type[-2]) if op_type.endswith("D") else 1
    real = draw(tensors(draw(shapes(num_axes, num_axes + 2)), "float32"))
    if not op_type.startswith(("RFFT", "IRFFT")):
        return case(op_type, (real + 1j * real[::-1]).astype(np.complex64))
    *longest, last = real.shape[-num_axes:]
    is_inverse = op_type.startswith("I")
    longest.append(max(1, 2 * (last - 1)) if is_inverse else last)
    lengths = known([draw(st.integers(1, size)) for size in longest])
    return case(op_type, real.astype(np.complex64) if is_inverse else real, lengths)


CASES = {op_type: transformed(op_type) for op_type in fourier.RULES}
