"""Sample ops of the types that a rewriting adds: small and large ones, which are priced."""

from collections.abc import Callable, Mapping

from pesto_cli.data.specs import Operand, OpSpec, Value
from pesto_cli.sharding.rules import elementwise

# Elements of the samples: one for the least time, two for the time by bytes. The large ones take
# far longer than a kernel launch. All are even, as a Split needs.
ELEMENTS = (2, 2**24, 2**26)

# The types that conversions and sums between layouts consist of.
CONVERSIONS = (
    *("Split", "SplitV", "ConcatV2", "AddN", "Slice", "Identity", "Minimum", "Maximum"),
    *("LogicalAnd", "LogicalOr", "Mul", "Sum", "Mean", "NoOp"),
)
_ARITHMETIC = frozenset({"Add", "AddV2", "Sub", "Mul", "Div", "RealDiv"})
_ELEMENTWISE = frozenset(elementwise.RULES) | _ARITHMETIC

Sample = Callable[[str, int], OpSpec]
"""(data type, number of elements) -> spec"""


def samples(op_type: str, dtype: str, example: OpSpec | None = None) -> tuple[OpSpec, ...]:
    """Return three samples of an op type by ascending size, or one; empty if it has none.

    example: an op of this type as a program has it; it is needed for types that are elementwise.
    """
    if op_type == "NoOp":
        return (OpSpec("NoOp", (), (), ()),)
    if op_type in _SAMPLES:
        return tuple(_SAMPLES[op_type](dtype, number) for number in ELEMENTS)
    if example is not None and op_type in _ELEMENTWISE:
        return tuple(_stretched(example, number) for number in ELEMENTS)
    return () if example is None else (example,)


def _stretched(example: OpSpec, number: int) -> OpSpec:
    """Return an elementwise op where each operand is a scalar as in the example, or a vector."""

    def stretch(operand: Operand) -> Operand:
        if operand.shape == ():
            return operand
        return Operand((number,), operand.dtype, None, operand.on_host)

    return OpSpec(
        example.type,
        example.attributes,
        tuple(map(stretch, example.inputs)),
        tuple(map(stretch, example.outputs)),
    )


def _constant(*value: int) -> Operand:
    return Operand((len(value),), "int32", value, on_host=True)


def _axis(value: int) -> Operand:
    return Operand((), "int32", value, on_host=True)


def _spec(
    op_type: str,
    inputs: tuple[Operand, ...],
    outputs: tuple[Operand, ...],
    **attributes: Value,
) -> OpSpec:
    return OpSpec(op_type, tuple(sorted(attributes.items())), inputs, outputs)


def _split(dtype: str, number: int) -> OpSpec:
    halves = (Operand((number // 2,), dtype),) * 2
    return _spec("Split", (_axis(0), Operand((number,), dtype)), halves, T=dtype, num_split=2)


def _split_v(dtype: str, number: int) -> OpSpec:
    halves = (Operand((number // 2,), dtype),) * 2
    inputs = (Operand((number,), dtype), _constant(number // 2, number // 2), _axis(0))
    return _spec("SplitV", inputs, halves, T=dtype, Tlen="int32", num_split=2)


def _concat(dtype: str, number: int) -> OpSpec:
    halves = (Operand((number // 2,), dtype),) * 2
    outputs = (Operand((number,), dtype),)
    return _spec("ConcatV2", (*halves, _axis(0)), outputs, N=2, T=dtype, Tidx="int32")


def _slice(dtype: str, number: int) -> OpSpec:
    inputs = (Operand((number,), dtype), _constant(0), _constant(number // 2))
    return _spec("Slice", inputs, (Operand((number // 2,), dtype),), T=dtype, Index="int32")


def _add_n(dtype: str, number: int) -> OpSpec:
    tensor = Operand((number,), dtype)
    return _spec("AddN", (tensor, tensor), (tensor,), N=2, T=dtype)


def _identity(dtype: str, number: int) -> OpSpec:
    tensor = Operand((number,), dtype)
    return _spec("Identity", (tensor,), (tensor,), T=dtype)


def _binary(op_type: str) -> Sample:
    def sample(dtype: str, number: int) -> OpSpec:
        tensor = Operand((number,), dtype)
        return _spec(op_type, (tensor, tensor), (tensor,), T=dtype)

    return sample


def _logical(op_type: str) -> Sample:
    def sample(dtype: str, number: int) -> OpSpec:
        tensor = Operand((number,), dtype)
        return _spec(op_type, (tensor, tensor), (tensor,))

    return sample


def _reduction(op_type: str) -> Sample:
    def sample(dtype: str, number: int) -> OpSpec:
        inputs = (Operand((2, number // 2), dtype), _constant(0))
        outputs = (Operand((number // 2,), dtype),)
        return _spec(op_type, inputs, outputs, T=dtype, Tidx="int32", keep_dims=False)

    return sample


_SAMPLES: Mapping[str, Sample] = {
    "Split": _split,
    "SplitV": _split_v,
    "ConcatV2": _concat,
    "AddN": _add_n,
    "Slice": _slice,
    "Identity": _identity,
    **{name: _binary(name) for name in ("Minimum", "Maximum", "Mul", "AddV2")},
    **{name: _logical(name) for name in ("LogicalAnd", "LogicalOr")},
    **{name: _reduction(name) for name in ("Sum", "Mean")},
}
BOOLEAN = frozenset({"LogicalAnd", "LogicalOr"})
"""Types that exist for bool only."""
