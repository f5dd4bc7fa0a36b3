"""Elementwise ops that are linear in one operand. Factors: the axes of the output; open sums."""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.rules.elementwise import elementwise, linear
from pesto_cli.sharding.rules.open_sums import FLOATS, open_sum

# The number of bits of the fraction and of the exponent.
_BITS = {"bfloat16": (7, 8), "float16": (10, 5), "float32": (23, 8), "float64": (52, 11)}


def multiplication(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes, with broadcasting. Linear in each of the two inputs."""
    yield from elementwise(spec)
    yield from open_sum(spec, 0, name="sum of input 0")
    yield from open_sum(spec, 1, name="sum of input 1")


def division(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes, with broadcasting. Linear in the dividend, if it is a float."""
    yield from elementwise(spec)
    if spec.outputs[0].dtype in FLOATS:
        yield from open_sum(spec, 0)


def cast(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes. Linear from a float type to one that contains all its numbers."""
    source, target = (_BITS.get(str(each.dtype)) for each in (*spec.inputs, *spec.outputs))
    is_exact = source and target and source[0] <= target[0] and source[1] <= target[1]
    yield from linear(spec) if is_exact else elementwise(spec)


RULES: dict[str, Rule] = {
    "Mul": multiplication,
    "RealDiv": division,
    "Cast": cast,
}
