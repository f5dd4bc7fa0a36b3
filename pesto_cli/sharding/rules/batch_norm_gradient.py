"""The gradient of fused batch normalisation, with statistics of the whole batch.

Factors: channels, and the batch. With given statistics, the gradients of scale and offset are
partial. With statistics of the batch, dx needs two sums over the whole batch of M numbers:

    dx = scale s (dy - Σ dy / M - (x - mean) s² Σ dy (x - mean) / M),   s = 1 / sqrt(variance + ε)

1. Once: s, from the kernel (see `batch_norm`): the gradient of the scale, Σ dy (x - mean) s, is s
   for chosen numbers.
2. Each part computes scale s dy and its sums of dy and of dy (x - mean). These are the outputs of
   the gradient for given statistics, which has no kernel for images with the channels first; there
   other ops compute them.
3. Once: the sums are added.
4. Each part subtracts the rest of dx, which is (x - mean) / M factor + shift: a normalisation of x
   for given statistics.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from pesto_cli.data.plan import LOCAL, Local
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.alternative import Alternative, Program, Rule, part_spec
from pesto_cli.sharding.layouts import OWN, REPLICATED, SUM, WHOLE, Layout, Split
from pesto_cli.sharding.program_builder import ProgramBuilder, Tensor, constant, taken
from pesto_cli.sharding.rules.batch_norm import kernel_for_vectors, number, static_channel_axis
from pesto_cli.sharding.rules.data_format import BATCH

_GRADIENTS = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")


def gradient(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs: dy, x, scale and the reserve spaces. Factors: batch, channels.

    Outputs: dx, dscale, doffset and two others without content.
    """
    x, channel = spec.inputs[1], static_channel_axis(spec)
    if channel is None:
        return
    image, vector = Split(channel), Split(0)
    scratch: tuple[Layout, ...] = (WHOLE,) * (len(spec.inputs) - 5)
    yield Alternative(
        "channels",
        x.sizes[channel],
        (image, image, vector, vector, vector, *scratch),
        (image, vector, vector, REPLICATED, REPLICATED),
    )
    others: tuple[Layout, ...] = (WHOLE,) * (len(spec.inputs) - 2)
    inputs = (Split(BATCH), Split(BATCH), *others)
    if not spec.attribute["is_training"]:
        outputs = (Split(BATCH), SUM, SUM, REPLICATED, REPLICATED)
        yield Alternative("batch", x.sizes[BATCH], inputs, outputs)
    else:
        whole = (Split(BATCH), WHOLE, WHOLE, WHOLE, WHOLE)
        yield Alternative("batch", x.sizes[BATCH], inputs, whole, program=_gradients)
        own: tuple[Layout, ...] = (OWN,) * (len(spec.inputs) - 3)
        yield Alternative(
            f"batch{LOCAL}",
            x.sizes[BATCH],
            (Split(BATCH), Split(BATCH), WHOLE, *own),
            (Split(BATCH), SUM, SUM, REPLICATED, REPLICATED),
            local=Local.BATCH_NORM,
        )


@dataclass(frozen=True)
class _Vectors:
    """Vectors `[num_channels]` of a gradient.

    s: 1 / sqrt(variance + ε). slope: scale s. mean: that of x. unit: the variance for which the
    kernel divides by 1.
    """

    s: Tensor
    slope: Tensor
    mean: Tensor
    unit: Tensor


def _gradients(spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    """Return the program of a gradient with statistics of the whole batch."""
    build = ProgramBuilder()
    parts = [part_spec(spec, alternative, size) for size in sizes]
    _, s, _, *scratch = _read(build, spec)
    vectors = _vectors(build, spec, s)
    sums = _with_channels_last if _has_channels_last(spec) else _with_channels_first
    own = [sums(build, part, vectors, index) for index, part in enumerate(parts)]
    products = build.sum_of("sum_of_products", [each[1] for each in own])
    d_offset = build.sum_of("gradient_of_offset", [each[2] for each in own])
    d_scale = build.elementwise("gradient_of_scale", "Mul", products, s)
    rest = _rest(build, spec, vectors, d_scale, d_offset)
    divisor = _variance_for(spec, _num_numbers(spec))
    dx = [
        build.elementwise(
            "dx",
            "Sub",
            own[index][0],
            _normalised(build, part, vectors, rest, divisor, index),
            part=index,
        )
        for index, part in enumerate(parts)
    ]
    return build.program([dx, [d_scale], [d_offset], *([each] for each in scratch)])


def _vectors(build: ProgramBuilder, spec: OpSpec, s: Tensor) -> _Vectors:
    scale = taken(spec, 2)
    unit = _variance_for(spec, 1)
    return _Vectors(s, build.elementwise("slope", "Mul", scale, s), taken(spec, 3), unit)


def _variance_for(spec: OpSpec, deviation: float) -> Tensor:
    """Return the variance for which the kernel divides by a deviation."""
    scale = spec.inputs[2]
    variance = deviation**2 - number(spec, "epsilon")
    return constant((variance,) * scale.sizes[0], scale.dtype)


def _read(build: ProgramBuilder, spec: OpSpec) -> tuple[Tensor, ...]:
    """Add a gradient of which the second output is s, as the kernel reads it.

    It is Σ dy (x - mean) s for dy = x = 1/2, -1/2, 1/2, -1/2 and mean = 0.
    """
    scale = taken(spec, 2)
    channels, dtype = scale.operand.sizes[0], scale.operand.dtype
    half, zeros = (0.5,) * channels, constant((0.0,) * channels, dtype)
    minus_half = tuple(-each for each in half)
    numbers = constant(tuple(((row,),) for row in (half, minus_half) * 2), dtype)
    kernel = kernel_for_vectors(spec, "FusedBatchNormGradV2", U=str(dtype))
    outputs = (replace(numbers.operand, value=None), *spec.outputs[1:])
    inputs = (numbers, numbers, scale, zeros, taken(spec, 4))
    return build.add("inverse_deviation", replace(kernel, outputs=outputs), inputs)


def _has_channels_last(spec: OpSpec) -> bool:
    return static_channel_axis(spec) == len(spec.inputs[0].sizes) - 1


def _with_channels_last(
    build: ProgramBuilder, part: OpSpec, vectors: _Vectors, index: int
) -> tuple[Tensor, ...]:
    """Add slope dy, Σ dy (x - mean) and Σ dy of a part: the gradient for given statistics."""
    scratch = (taken(part, slot) for slot in range(5, len(part.inputs)))
    images = taken(part, 0), taken(part, 1)
    inputs = (*images, vectors.slope, vectors.mean, vectors.unit, *scratch)
    return build.add("", part.with_attributes(is_training=False), inputs, index)


def _with_channels_first(
    build: ProgramBuilder, part: OpSpec, vectors: _Vectors, index: int
) -> tuple[Tensor, ...]:
    """Add what `_with_channels_last` adds, by ops that take any format."""
    dtype, rank = vectors.mean.operand.dtype, len(part.inputs[1].sizes)
    sizes = (*vectors.mean.operand.sizes, *(1 for _ in range(2, rank)))
    mean = build.reshaped("mean_for_pixels", vectors.mean, sizes, index)
    slope = build.reshaped("slope_for_pixels", vectors.slope, sizes, index)
    dy = build.cast("dy", taken(part, 0), dtype, index)
    x = build.cast("x", taken(part, 1), dtype, index)
    scaled = build.elementwise("scaled_dy", "Mul", dy, slope, part=index)
    centred = build.elementwise("centred_x", "Sub", x, mean, part=index)
    products = build.elementwise("products", "Mul", centred, dy, part=index)
    others = (BATCH, *range(2, rank))
    return (
        build.cast("dx_for_given_statistics", scaled, part.inputs[0].dtype, index),
        build.reduced("sum_of_products_of_part", "Sum", products, others, index),
        build.reduced("sum_of_dy", "Sum", dy, others, index),
    )


def _rest(
    build: ProgramBuilder, spec: OpSpec, vectors: _Vectors, d_scale: Tensor, d_offset: Tensor
) -> tuple[Tensor, Tensor]:
    """Add the factor slope s Σ dy (x - mean) s, and the shift slope Σ dy / M."""
    mean_of_dy = build.times("mean_of_dy", d_offset, 1 / _num_numbers(spec))
    slope_of_x = build.elementwise("slope_of_x", "Mul", vectors.slope, vectors.s)
    return (
        build.elementwise("factor", "Mul", slope_of_x, d_scale),
        build.elementwise("shift", "Mul", vectors.slope, mean_of_dy),
    )


def _num_numbers(spec: OpSpec) -> int:
    """Return M, how many numbers of each channel are normalised together."""
    return prod(spec.inputs[1].sizes) // spec.inputs[2].sizes[0]


def _normalised(
    build: ProgramBuilder,
    part: OpSpec,
    vectors: _Vectors,
    rest: tuple[Tensor, Tensor],
    divisor: Tensor,
    index: int,
) -> Tensor:
    """Add (x - mean) / M factor + shift for a part of x. divisor: see `_variance_for` M."""
    kernel = replace(part, type=part.type.replace("Grad", "")).with_attributes(
        exponential_avg_factor=1.0, is_training=False
    )
    scratch = (Operand((0,), rest[0].operand.dtype),) * (len(part.inputs) - 5)
    outputs = (part.inputs[1], *(rest[0].operand,) * 4, *scratch)
    inputs = (taken(part, 1), *rest, vectors.mean, divisor)
    return build.add("rest_of_dx", replace(kernel, outputs=outputs), inputs, index)[0]


RULES: dict[str, Rule] = dict.fromkeys(_GRADIENTS, gradient)
