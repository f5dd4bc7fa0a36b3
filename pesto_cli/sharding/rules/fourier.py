"""Fourier transforms along the last one, two or three axes. Factors: the axes before them."""

from collections.abc import Iterator
from functools import partial

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import WHOLE, Split

# Number of axes that are transformed -> op types.
_TYPES = {
    1: "FFT IFFT RFFT IRFFT",
    2: "FFT2D IFFT2D RFFT2D IRFFT2D",
    3: "FFT3D IFFT3D RFFT3D IRFFT3D",
}


def transform(spec: OpSpec, num_axes: int) -> Iterator[Alternative]:
    """Factors: the axes before those that are transformed. The lengths of the latter are whole."""
    for axis, size in enumerate(spec.inputs[0].sizes[:-num_axes]):
        split = Split(axis)
        lengths = (WHOLE,) * (len(spec.inputs) - 1)
        yield Alternative(f"axis {axis}", size, (split, *lengths), (split,))


RULES: dict[str, Rule] = {
    op_type: partial(transform, num_axes=num_axes)
    for num_axes, types in _TYPES.items()
    for op_type in types.split()
}
