"""Linear elementwise ops. Factors: the axes of the output; sums of operands stay open.

A sum of terms stays open if all terms are partial, a product if one operand is partial and the
other one is whole.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import WHOLE, Split
from pesto_cli.sharding.rules.elementwise import elementwise, linear
from pesto_cli.sharding.rules.open_sums import FLOATS, open_sum

# The number of bits of the fraction and of the exponent.
_BITS = {"bfloat16": (7, 8), "float16": (10, 5), "float32": (23, 8), "float64": (52, 11)}


def addition(spec: OpSpec) -> Iterator[Alternative]:
    """AddN, AddV2, Sub: linear in all terms together."""
    yield from elementwise(spec)
    yield from open_sum(spec, *range(len(spec.inputs)))


def multiplication(spec: OpSpec) -> Iterator[Alternative]:
    """Mul: linear in each factor."""
    yield from elementwise(spec)
    yield from open_sum(spec, 0, name="sum of input 0")
    yield from open_sum(spec, 1, name="sum of input 1")


def division(spec: OpSpec) -> Iterator[Alternative]:
    """RealDiv: linear in the dividend, if the quotients are not rounded to integers."""
    yield from elementwise(spec)
    if spec.outputs[0].dtype in FLOATS:
        yield from open_sum(spec, 0)


def bias_add(spec: OpSpec) -> Iterator[Alternative]:
    """BiasAdd. The bias is split with the channels; linear in both terms together."""
    output = spec.outputs[0]
    channels = channel_axis(spec)
    for axis, size in enumerate(output.sizes):
        if size > 1:
            bias = Split(0) if axis == channels else WHOLE
            yield Alternative(f"axis {axis}", size, (Split(axis), bias), (Split(axis),))
    yield from open_sum(spec, 0, 1)


def cast(spec: OpSpec) -> Iterator[Alternative]:
    """Cast: linear if it is to a float type that contains all numbers of the other float type."""
    source, target = (_BITS.get(str(each.dtype)) for each in (*spec.inputs, *spec.outputs))
    is_exact = source and target and source[0] <= target[0] and source[1] <= target[1]
    yield from linear(spec) if is_exact else elementwise(spec)


def channel_axis(spec: OpSpec) -> int:
    """Return the axis of the channels of the first input of BiasAdd and BiasAddGrad."""
    is_second = spec.attribute["data_format"] == "NCHW"
    return 1 if is_second else len(spec.inputs[0].sizes) - 1


RULES: dict[str, Rule] = {
    **dict.fromkeys(("Add", "AddN", "AddV2", "Sub"), addition),
    "Mul": multiplication,
    "RealDiv": division,
    "BiasAdd": bias_add,
    "Cast": cast,
}
