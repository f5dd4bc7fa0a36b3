"""Linear ops: a sum of an input is left open, and each part computes its summand of the output."""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative
from pesto_cli.sharding.layouts import SUM, WHOLE

_OTHERS = "int8 int16 int32 int64 complex64 complex128"
FLOATS = frozenset({"bfloat16", "float16", "float32", "float64"})
UNSIGNED = frozenset({"uint8", "uint16", "uint32", "uint64"})
NUMBERS = FLOATS | UNSIGNED | frozenset(_OTHERS.split())
"""Types of operands that can be added."""


def open_sum(spec: OpSpec, *slots: int, name: str = "sum") -> Iterator[Alternative]:
    """Yield the alternative in which inputs and outputs are partial, if they are numbers.

    slots: the inputs that are partial; the op must be linear in all of them together. The other
        inputs are whole.
    """
    if all(operand.dtype in NUMBERS for operand in spec.outputs):
        inputs = tuple(SUM if slot in slots else WHOLE for slot in range(len(spec.inputs)))
        yield Alternative(name, None, inputs, (SUM,) * len(spec.outputs))
