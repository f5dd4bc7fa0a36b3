"""Fourier transforms along the last one, two or three axes. Factors: the axes before them."""

from collections.abc import Iterator
from functools import partial

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.rules.axes import along

# Number of axes that are transformed -> op types.
_TYPES = {
    1: "FFT IFFT RFFT IRFFT",
    2: "FFT2D IFFT2D RFFT2D IRFFT2D",
    3: "FFT3D IFFT3D RFFT3D IRFFT3D",
}


def transform(spec: OpSpec, num_axes: int) -> Iterator[Alternative]:
    """Factors: the axes before those that are transformed. The input with the lengths is whole."""
    for axis in range(len(spec.inputs[0].sizes) - num_axes):
        yield along(spec, axis, {0: axis})


RULES: dict[str, Rule] = {
    op_type: partial(transform, num_axes=num_axes)
    for num_axes, types in _TYPES.items()
    for op_type in types.split()
}
