"""Elementwise ops, with broadcasting. Factors: the axes of the output."""

from collections.abc import Iterator

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import REPLICATED, WHOLE, Layout, Split
from pesto_cli.sharding.rules.open_sums import open_sum

UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil Cos Cosh Digamma Elu EluGrad Erf
    Erfc Erfinv Exp Expm1 FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient Floor Inv InvGrad
    Invert IsFinite IsInf IsNan LeakyRelu LeakyReluGrad Lgamma Log Log1p LogicalNot Ndtri
    Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad Rint Round Rsqrt RsqrtGrad Selu SeluGrad
    Sigmoid SigmoidGrad Sign Sin Sinh Softplus SoftplusGrad Softsign SoftsignGrad Sqrt SqrtGrad
    Square Tan Tanh TanhGrad ZerosLike OnesLike CheckNumerics
"""
COMPLEX = "Angle ComplexAbs Conj Imag Real"  # of complex numbers
BINARY = """
    ApproximateEqual Atan2 BitwiseAnd BitwiseOr BitwiseXor Complex Div DivNoNan Equal
    FakeQuantWithMinMaxVars FloorDiv FloorMod Greater GreaterEqual Igamma IgammaGradA Igammac
    LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mod MulNoNan NextAfter NotEqual
    Polygamma Pow RightShift SelectV2 SquaredDifference TruncateDiv TruncateMod Xdivy Xlogy Xlog1py
    Zeta ClipByValue
"""
LINEAR = "Neg Identity StopGradient PreventGradient Snapshot"  # of the first input


def elementwise(spec: OpSpec) -> Iterator[Alternative]:
    """Split along any axis of the output; an input without the full size there is whole."""
    output = spec.outputs[0]
    for axis, size in enumerate(output.sizes):
        layouts = tuple(_aligned(operand, output, axis) for operand in spec.inputs)
        yield Alternative(f"axis {axis}", size, layouts, (Split(axis),) * len(spec.outputs))


def linear(spec: OpSpec) -> Iterator[Alternative]:
    """Split along any axis, or leave a sum of the input open."""
    yield from elementwise(spec)
    yield from open_sum(spec, 0)


def identities(spec: OpSpec) -> Iterator[Alternative]:
    """IdentityN. Split the tensors that have the shape of the first one; each part has all others.

    Linear in all tensors together. One with handles is whole.
    """
    if any(operand.is_handle for operand in spec.inputs):
        return
    shape = spec.inputs[0].shape
    for axis, size in enumerate(spec.inputs[0].sizes):
        is_split = [operand.shape == shape for operand in spec.inputs]
        inputs = tuple(Split(axis) if each else WHOLE for each in is_split)
        outputs = tuple(Split(axis) if each else REPLICATED for each in is_split)
        yield Alternative(f"axis {axis}", size, inputs, outputs)
    yield from open_sum(spec, *range(len(spec.inputs)))


def _aligned(operand: Operand, output: Operand, axis: int) -> Layout:
    """Return the layout of an input for an output that is split along an axis."""
    own = axis - len(output.sizes) + len(operand.sizes)
    is_full = own >= 0 and operand.sizes[own] == output.sizes[axis]
    return Split(own) if is_full else WHOLE


RULES: dict[str, Rule] = {
    **dict.fromkeys((*UNARY.split(), *COMPLEX.split(), *BINARY.split()), elementwise),
    **dict.fromkeys(LINEAR.split(), linear),
    "IdentityN": identities,
}
