"""Fused batch normalisation, with statistics of the whole batch.

Factors: channels, which are normalised alone; and the batch. With given statistics
(`is_training=False`), the batch is elementwise. With statistics of the batch, images of one pixel
stay whole along the batch. M numbers of a channel, m_i of them in a part i, are normalised in three
steps:

1. Each part computes its mean and its variance.
2. Once for all parts, means and variances are combined without a difference of large sums (after
   Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm, 1979; here for many parts):
       mean = Σ m_i/M mean_i,   variance = Σ (m_i/M (mean_i - mean)² + (m_i - 1)/M variance_i)
3. Each part is normalised with them.

If the user allows it, each part is normalised with its own statistics. Whole moving averages see
those of the first part; each copy of a mirrored one sees those of its own part. Horovod and
PyTorch's `DistributedDataParallel` do the same, and save the averages of the first process.

An op passes its statistics to its gradient in `reserve_space_2`, where a CPU kernel writes the
variance, and a GPU kernel 1 / sqrt(variance + ε). So that whole ops and split ones can be combined
on any device, only kernels write and read it: here the kernel normalises the numbers √variance and
-√variance, and stores the variance that they have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from pesto_cli.data.plan import LOCAL, Local
from pesto_cli.data.specs import Operand, OpSpec, Value
from pesto_cli.sharding.alternative import Alternative, Program, Rule, part_spec
from pesto_cli.sharding.layouts import OWN, REPLICATED, WHOLE, Layout, Split
from pesto_cli.sharding.program_builder import ProgramBuilder, Tensor, constant, taken
from pesto_cli.sharding.rules.data_format import BATCH, channel_axis

_FORWARD = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")


def normalisation(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs: x, scale, offset, mean, variance. Factors: batch, channels.

    Outputs: y, mean and variance for moving averages, and the reserve spaces. The third one, which
    only V3 has, has no known shape.
    """
    x, channel = spec.inputs[0], static_channel_axis(spec)
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
        own: tuple[Layout, ...] = (OWN,) * (num_others - 2)
        yield Alternative(
            f"batch{LOCAL}",
            x.sizes[BATCH],
            inputs,
            (Split(BATCH), REPLICATED, REPLICATED, *own),
            local=Local.BATCH_NORM,
        )


def static_channel_axis(spec: OpSpec) -> int | None:
    """Return the axis of the channels of x; None if it or a shape is unknown, or x is empty.

    The third reserve space, the sixth operand of V3 and its gradient, never has a known shape.
    """
    is_static = all(operand.is_static for operand in (*spec.inputs[:5], *spec.outputs[:5]))
    if not is_static or 0 in spec.inputs[0].sizes:
        return None
    return channel_axis(spec, len(spec.inputs[0].sizes))


def _num_pixels(images: Operand, channel: int) -> int:
    return prod(size for axis, size in enumerate(images.sizes) if axis not in (BATCH, channel))


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
            (*_images_scale_offset(part), mean, variance),
            index,
        )[0]
        for index, part in enumerate(parts)
    ]
    num_numbers = prod(spec.inputs[0].sizes) // mean.operand.sizes[0]
    unbiased = build.times("unbiased_variance", variance, num_numbers / (num_numbers - 1))
    averages = [
        _moved(build, spec, "mean", taken(spec, 3), mean),
        _moved(build, spec, "variance", taken(spec, 4), unbiased),
    ]
    reserved = _stored(build, spec, variance)
    return build.program([y, *([each] for each in (*averages, mean, *reserved))])


def _statistics(build: ProgramBuilder, parts: list[OpSpec]) -> tuple[Tensor, Tensor]:
    """Add the mean and the variance of the whole batch, both `[num_channels]`.

    The kernel multiplies the variance of a part by its share, as it does for moving averages.
    """
    scale = parts[0].inputs[1]
    zeros = constant((0.0,) * scale.sizes[0], scale.dtype)
    counts = [prod(part.inputs[0].sizes) // scale.sizes[0] for part in parts]
    shares = [count / sum(counts) for count in counts]
    own = [
        build.add(
            "statistics",
            part.with_attributes(exponential_avg_factor=(count - 1) / sum(counts)),
            (*_images_scale_offset(part), zeros, zeros),
            index,
        )
        for index, (part, count) in enumerate(zip(parts, counts, strict=True))
    ]
    means = build.stack("means", [each[3] for each in own])
    mean = _weighted_mean(build, "mean", means, shares)
    deviations = build.elementwise("deviations", "SquaredDifference", means, mean)
    between = _weighted_mean(build, "variance_between_parts", deviations, shares)
    return mean, build.sum_of("variance", [between, *(each[2] for each in own)])


def _weighted_mean(
    build: ProgramBuilder, name: str, rows: Tensor, shares: Sequence[float]
) -> Tensor:
    if len(set(shares)) == 1:
        return build.reduced(name, "Mean", rows, (0,))
    weighted = build.times(f"shares_of_{name}", rows, tuple((share,) for share in shares))
    return build.reduced(name, "Sum", weighted, (0,))


def _moved(build: ProgramBuilder, spec: OpSpec, name: str, old: Tensor, new: Tensor) -> Tensor:
    """Add (1 - factor) old + factor new, for the `exponential_avg_factor`."""
    factor = number(spec, "exponential_avg_factor")
    if factor == 1:
        return new
    kept = build.times(f"old_{name}", old, 1 - factor)
    added = build.times(f"new_{name}", new, factor)
    return build.elementwise(f"moving_{name}", "AddV2", kept, added)


def _stored(build: ProgramBuilder, spec: OpSpec, variance: Tensor) -> tuple[Tensor, ...]:
    """Add the reserve spaces after the first one, as the kernel writes them for a variance."""
    deviation = build.elementwise("deviation", "Sqrt", variance)
    numbers = build.times("numbers", deviation, ((((1.0,),),), (((-1.0,),),)))
    kernel = kernel_for_vectors(spec, exponential_avg_factor=1.0, is_training=True)
    outputs = (numbers.operand, *spec.outputs[1:])
    inputs = (numbers, *(taken(spec, slot) for slot in range(1, 5)))
    return build.add("reserve_spaces", replace(kernel, outputs=outputs), inputs)[4:]


def _images_scale_offset(part: OpSpec) -> tuple[Tensor, ...]:
    return tuple(taken(part, slot) for slot in range(3))


def kernel_for_vectors(spec: OpSpec, op_type: str = "", **attributes: Value) -> OpSpec:
    """Return an op on small images with the type of the vectors, and with the channels last."""
    dtype = str(spec.outputs[1].dtype)
    own = {"T": dtype, "data_format": "NHWC", **attributes}
    return replace(spec, type=op_type or spec.type).with_attributes(**own)


def number(spec: OpSpec, name: str) -> float:
    """Return an attribute that is a number."""
    value = spec.attribute[name]
    if not isinstance(value, int | float):
        raise ValueError(f"attribute {name} of {spec.type} is {value}, not a number")
    return float(value)


RULES: dict[str, Rule] = dict.fromkeys(_FORWARD, normalisation)
