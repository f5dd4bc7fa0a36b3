"""Fused batch normalisation and its gradient, with statistics of the whole batch.

Factors: channels, which are normalised alone; and the batch. With given statistics
(`is_training=False`), the batch is elementwise, and gradients of scale and offset are partial. With
statistics of the batch, images of one pixel and gradients of images with the channels first stay
whole along the batch. M numbers of a channel, m of them in a part i, are normalised in three steps:

1. Each part computes its mean and its variance.
2. Once for all parts, means and sums of squares are combined without a difference of large sums
   (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm, 1979, Equation 2.1):
       mean = Σ m_i/M mean_i,   variance = Σ (m_i/M (mean_i - mean)² + (m_i - 1)/M variance_i)
3. Each part is normalised with them.

The gradient of x, for x̂ = (x - mean) s and s = 1/sqrt(variance + ε), needs two sums over the batch:
    dx = scale s (dy - Σ dy / M - x̂ Σ dy x̂ / M)

An op passes its statistics to its gradient in `reserve_space_2`, where a CPU kernel writes the
variance and a GPU kernel writes s. So that whole ops and split ones can be combined on any device,
kernels alone write it and read it here:
- Written: the kernel normalises the numbers √variance and -√variance, whose variance it stores.
- Read: the gradient of the scale is Σ dy (x - mean) s, which is s for chosen numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from pesto_cli.data.specs import Operand, OpSpec, Value
from pesto_cli.sharding.alternative import Alternative, Program, Rule, part_spec
from pesto_cli.sharding.layouts import REPLICATED, SUM, WHOLE, Layout, Split
from pesto_cli.sharding.program_builder import ProgramBuilder, Tensor, constant, taken
from pesto_cli.sharding.rules.data_format import BATCH, channel_axis

_FORWARD = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_GRADIENTS = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")


def normalisation(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs: x, scale, offset, mean, variance. Factors: batch, channels.

    Outputs: y, mean and variance for moving averages, and the reserve spaces. The third one, which
    only V3 has, has no known shape.
    """
    x, channel = spec.inputs[0], _channel_axis(spec)
    if channel is None:
        return
    split: tuple[Layout, ...] = (Split(channel), *(Split(0),) * 4)
    scratch: tuple[Layout, ...] = (REPLICATED,) * (len(spec.outputs) - 5)
    yield Alternative("channels", x.sizes[channel], split, (*split, *scratch))
    inputs: tuple[Layout, ...] = (Split(BATCH), *(WHOLE,) * 4)
    num_others = len(spec.outputs) - 1
    if not spec.attribute["is_training"]:
        copies: tuple[Layout, ...] = (REPLICATED,) * num_others
        yield Alternative("batch", x.sizes[BATCH], inputs, (Split(BATCH), *copies))
    elif _num_pixels(x, channel) > 1:
        whole: tuple[Layout, ...] = (WHOLE,) * num_others
        outputs = (Split(BATCH), *whole)
        yield Alternative("batch", x.sizes[BATCH], inputs, outputs, program=_normalised)


def gradient(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs: dy, x, scale and the reserve spaces. Factors: batch, channels.

    Outputs: dx, dscale, doffset and two others without content.
    """
    x, channel = spec.inputs[1], _channel_axis(spec)
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
    elif channel == len(x.sizes) - 1:
        whole = (Split(BATCH), WHOLE, WHOLE, WHOLE, WHOLE)
        yield Alternative("batch", x.sizes[BATCH], inputs, whole, program=_gradients)


def _channel_axis(spec: OpSpec) -> int | None:
    """Return the axis of the channels of x; None if the format or a shape is not known.

    The third reserve space, the sixth operand of V3 and its gradient, never has a known shape.
    """
    is_static = all(operand.is_static for operand in (*spec.inputs[:5], *spec.outputs[:5]))
    return channel_axis(spec, len(spec.inputs[0].sizes)) if is_static else None


def _num_pixels(images: Operand, channel: int) -> int:
    return prod(images.sizes) // images.sizes[BATCH] // images.sizes[channel]


def _normalised(spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    """Return the program of a normalisation with the statistics of the whole batch."""
    build = ProgramBuilder()
    parts = [part_spec(spec, alternative, size) for size in sizes]
    mean, variance = _statistics(build, parts)
    given = spec.with_attributes(is_training=False)
    y = [
        build.add(
            "",
            replace(given, outputs=part.outputs),
            (taken(part, 0), taken(part, 1), taken(part, 2), mean, variance),
            number,
        )[0]
        for number, part in enumerate(parts)
    ]
    num_numbers = prod(spec.inputs[0].sizes) // mean.operand.sizes[0]
    unbiased = _times(build, "unbiased variance", variance, num_numbers / (num_numbers - 1))
    averages = [
        _moved(build, spec, "mean", taken(spec, 3), mean),
        _moved(build, spec, "variance", taken(spec, 4), unbiased),
    ]
    reserved = _stored(build, spec, variance)
    return build.program([y, *([each] for each in (*averages, mean, *reserved))])


def _statistics(build: ProgramBuilder, parts: list[OpSpec]) -> tuple[Tensor, Tensor]:
    """Add the mean and the variance of the whole batch, both `[num_channels]`."""
    own = [
        build.add(
            "statistics", part.with_attributes(exponential_avg_factor=1.0), _all(part), number
        )
        for number, part in enumerate(parts)
    ]
    counts = [prod(part.inputs[0].sizes) // part.inputs[1].sizes[0] for part in parts]
    shares = tuple((count / sum(counts),) for count in counts)
    shares_within = tuple(((count - 1) / sum(counts),) for count in counts)
    means = build.stack("means", [each[1] for each in own])
    mean = build.sum_of_rows("mean", _times(build, "shares of means", means, shares))
    deviations = build.elementwise("deviations", "SquaredDifference", means, mean)
    between = _times(build, "variances between parts", deviations, shares)
    variances = build.stack("variances", [each[2] for each in own])
    within = _times(build, "variances within parts", variances, shares_within)
    both = build.elementwise("shares of variances", "AddV2", between, within)
    return mean, build.sum_of_rows("variance", both)


def _moved(build: ProgramBuilder, spec: OpSpec, name: str, old: Tensor, new: Tensor) -> Tensor:
    """Add (1 - factor) old + factor new, for the `exponential_avg_factor`."""
    factor = _number(spec, "exponential_avg_factor")
    if factor == 1:
        return new
    kept = _times(build, f"old {name}", old, 1 - factor)
    added = _times(build, f"new {name}", new, factor)
    return build.elementwise(f"moving {name}", "AddV2", kept, added)


def _stored(build: ProgramBuilder, spec: OpSpec, variance: Tensor) -> tuple[Tensor, ...]:
    """Add the reserve spaces after the first one, as the kernel writes them for a variance."""
    deviation = build.elementwise("deviation", "Sqrt", variance)
    negative = build.elementwise("negative deviation", "Neg", deviation)
    both = build.stack("numbers", [deviation, negative])
    sizes = (2, 1, 1, variance.operand.sizes[0])
    numbers = build.reshaped("numbers as images", both, sizes)
    kernel = _kernel(spec, exponential_avg_factor=1.0, is_training=True)
    outputs = (numbers.operand, *spec.outputs[1:])
    inputs = (numbers, *(taken(spec, slot) for slot in range(1, 5)))
    return build.add("reserve spaces", replace(kernel, outputs=outputs), inputs)[4:]


@dataclass(frozen=True)
class _Vectors:
    """Vectors `[num_channels]` of a gradient.

    inverse: 1 / sqrt(variance + ε). slope: scale * inverse. unit: the variance for which the kernel
    divides by 1. mean: that of x.
    """

    inverse: Tensor
    slope: Tensor
    unit: Tensor
    mean: Tensor


def _gradients(spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    """Return the program of a gradient with statistics of the whole batch.

    The gradient for given statistics with unit variance has dx = slope dy, and the sums of
    dy (x - mean) and of dy. The rest of dx is -slope Σ dy / M - (x - mean) slope s² Σ dy (x - mean)
    / M: a normalisation of x with unit variance.
    """
    build = ProgramBuilder()
    parts = [part_spec(spec, alternative, size) for size in sizes]
    vectors = _vectors(build, spec)
    own = [
        build.add("", part.with_attributes(is_training=False), _given(part, vectors), number)
        for number, part in enumerate(parts)
    ]
    products = build.sum_of("sum of products", [each[1] for each in own])
    d_offset = build.sum_of("gradient of offset", [each[2] for each in own])
    d_scale = build.elementwise("gradient of scale", "Mul", products, vectors.inverse)
    rest = _rest(build, spec, vectors, d_scale, d_offset)
    x_gradients = [
        build.elementwise(
            "gradient of x",
            "AddV2",
            own[number][0],
            _corrected(build, part, vectors, rest, number),
            part=number,
        )
        for number, part in enumerate(parts)
    ]
    return build.program([x_gradients, [d_scale], [d_offset], [own[0][3]], [own[0][4]]])


def _vectors(build: ProgramBuilder, spec: OpSpec) -> _Vectors:
    scale, mean = taken(spec, 2), taken(spec, 3)
    dtype, channels = scale.operand.dtype, scale.operand.sizes[0]
    one = constant((1 - _number(spec, "epsilon"),), dtype)
    unit = build.broadcast("unit variance", one, (channels,))
    inverse = _read(build, spec)
    return _Vectors(inverse, build.elementwise("slope", "Mul", scale, inverse), unit, mean)


def _read(build: ProgramBuilder, spec: OpSpec) -> Tensor:
    """Add 1 / sqrt(variance + ε) as the kernel reads it from the second reserve space.

    It is the gradient of the scale, Σ dy (x - mean) s, for dy = x = 1/2, -1/2, 1/2, -1/2, mean = 0.
    """
    scale = taken(spec, 2)
    channels = scale.operand.sizes[0]
    signs = constant(tuple((((sign / 2,),),) for sign in (1, -1, 1, -1)), scale.operand.dtype)
    numbers = build.broadcast("numbers", signs, (4, 1, 1, channels))
    zeros = build.elementwise("zeros", "ZerosLike", taken(spec, 3))
    kernel = _kernel(spec, "FusedBatchNormGradV2", U=str(scale.operand.dtype))
    outputs = (numbers.operand, *spec.outputs[1:])
    inputs = (numbers, numbers, scale, zeros, taken(spec, 4))
    return build.add("inverse deviation", replace(kernel, outputs=outputs), inputs)[1]


def _given(part: OpSpec, vectors: _Vectors) -> tuple[Tensor, ...]:
    """Return the inputs of the gradient of a part for given statistics."""
    others = (taken(part, slot) for slot in range(5, len(part.inputs)))
    return (taken(part, 0), taken(part, 1), vectors.slope, vectors.mean, vectors.unit, *others)


def _rest(
    build: ProgramBuilder, spec: OpSpec, vectors: _Vectors, d_scale: Tensor, d_offset: Tensor
) -> tuple[Tensor, Tensor]:
    """Add -slope s dscale / M and -slope doffset / M, both `[num_channels]`."""
    count = prod(spec.inputs[1].sizes) // d_scale.operand.sizes[0]
    mean_of_products = _times(build, "mean of products", d_scale, -1 / count)
    mean_of_gradients = _times(build, "mean of gradients", d_offset, -1 / count)
    factor = build.elementwise("slope of x", "Mul", vectors.slope, vectors.inverse)
    return (
        build.elementwise("factor", "Mul", factor, mean_of_products),
        build.elementwise("shift", "Mul", vectors.slope, mean_of_gradients),
    )


def _corrected(
    build: ProgramBuilder, part: OpSpec, vectors: _Vectors, rest: tuple[Tensor, Tensor], number: int
) -> Tensor:
    """Add (x - mean) factor + shift for a part of x."""
    forward = replace(part, type=part.type.replace("Grad", ""))
    vector, num_reserved = rest[0].operand, len(part.inputs) - 5
    outputs = (part.inputs[1], *(vector,) * 4, *(Operand(None, vector.dtype),) * num_reserved)
    kernel = replace(
        forward.with_attributes(exponential_avg_factor=1.0, is_training=False), outputs=outputs
    )
    inputs = (taken(part, 1), *rest, vectors.mean, vectors.unit)
    return build.add("correction", kernel, inputs, number)[0]


def _times(build: ProgramBuilder, name: str, tensor: Tensor, factor: Value) -> Tensor:
    return build.elementwise(name, "Mul", tensor, constant(factor, tensor.operand.dtype))


def _all(part: OpSpec) -> tuple[Tensor, ...]:
    return tuple(taken(part, slot) for slot in range(len(part.inputs)))


def _kernel(spec: OpSpec, op_type: str = "", **attributes: Value) -> OpSpec:
    """Return an op on small images with the type of the vectors, and with the channels last."""
    dtype = str(spec.outputs[1].dtype)
    own = {"T": dtype, "data_format": "NHWC", **attributes}
    return replace(spec, type=op_type or spec.type).with_attributes(**own)


def _number(spec: OpSpec, name: str) -> float:
    value = spec.attribute[name]
    if not isinstance(value, int | float):
        raise ValueError(f"attribute {name} of {spec.type} is {value}, not a number")
    return float(value)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_FORWARD, normalisation),
    **dict.fromkeys(_GRADIENTS, gradient),
}
