"""Sample ops of the types that a rewriting adds: small and large ones, which are priced."""

from collections.abc import Callable, Mapping

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.layouts import Reduction
from pesto_cli.sharding.rules import elementwise

# Elements of the samples: one for the least time, two for the time by bytes. The large ones take
# far longer than a kernel launch. All are even, as a Split needs.
Elements = tuple[int, int, int]
ELEMENTS: Elements = (4, 2**24, 2**26)
MEASURED_ELEMENTS: Elements = (4, 2**18, 2**21)
"""Of samples that run on real devices: 1 and 8 MiB of float32, as large as many tensors of a step.
On a CPU, the time for a byte depends on whether the tensor fits into its caches."""
BOOLEAN = frozenset({"LogicalAnd", "LogicalOr"})
"""Types that exist for bool only."""
ORDERED = frozenset({"Minimum", "Maximum"})
"""Types that do not exist for bool."""

_ARITHMETIC = frozenset({"Add", "AddV2", "Sub", "Mul", "Div", "RealDiv"})
_ELEMENTWISE = frozenset(elementwise.RULES) | _ARITHMETIC

Sample = Callable[[Operand, int], OpSpec]
"""(vector, half of its elements) -> spec"""


def _combined(reduction: Reduction) -> Sample:
    return lambda tensor, half: added_ops.combined(tensor, reduction, 2)


def _uneven(tensor: Operand, half: int) -> OpSpec:
    return added_ops.split(tensor, 0, (half - 1, half + 1))


_CONVERSIONS: Mapping[str, Sample] = {
    "Split": lambda tensor, half: added_ops.split(tensor, 0, (half, half)),
    "SplitV": _uneven,
    # A Slice and a SplitV copy a byte in the same time. But TensorFlow's estimate of a Slice counts
    # one arithmetic operation for each element, too.
    "Slice": _uneven,
    "ConcatV2": lambda tensor, half: added_ops.concat(tensor, 0, (half, half)),
    "Identity": lambda tensor, half: added_ops.copied(tensor),
    "IdentityN": lambda tensor, half: added_ops.bundled((tensor, tensor)),
    **{op_type: _combined(reduction) for reduction, op_type in added_ops.COMBINING.items()},
}
SIZELESS = frozenset({"Const", "NoOp"})
"""Types of ops that take the same time whatever their size: constants of parts, and joins of
control edges."""
CONVERSIONS = (*_CONVERSIONS, *sorted(SIZELESS))
"""The types of the ops that convert tensors between layouts, and those of `SIZELESS`."""


def samples(
    op_type: str, dtype: str, example: OpSpec | None = None, elements: Elements = ELEMENTS
) -> tuple[OpSpec, ...]:
    """Return three samples of an op type by ascending size, or one; empty if it has none.

    example: an op of this type as a program has it, for types that are no conversions. elements:
        of the tensors of the three samples.
    """
    if op_type == "NoOp":
        return (added_ops.JOIN,)
    if op_type == "Const":
        return (added_ops.constant(Operand((), dtype)),)
    if op_type in _CONVERSIONS:
        sample = _CONVERSIONS[op_type]
        return tuple(sample(Operand((number,), dtype), number // 2) for number in elements)
    if example is None:
        return ()
    if op_type in _ELEMENTWISE:
        return tuple(stretched(example, number) for number in elements)
    return (example,)


def stretched(example: OpSpec, number: int) -> OpSpec:
    """Return an elementwise op where each operand is a scalar as in the example, or a vector."""

    def stretch(operand: Operand) -> Operand:
        return operand if operand.shape == () else Operand((number,), operand.dtype)

    return OpSpec(
        example.type,
        example.attributes,
        tuple(map(stretch, example.inputs)),
        tuple(map(stretch, example.outputs)),
    )


def fallback_samples(elements: Elements = ELEMENTS) -> tuple[OpSpec, ...]:
    """Return samples of an op that reads two tensors and writes one."""
    tensor = Operand((1,), "float32")
    addition = OpSpec("AddV2", (("T", "float32"),), (tensor, tensor), (tensor,))
    return tuple(stretched(addition, number) for number in elements)
