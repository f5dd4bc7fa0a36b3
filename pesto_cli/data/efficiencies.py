"""Efficiencies of families of ops on an H100 with TF32, fitted to measured kernels.

`python -m benchmarks.gpu_ops.table` prints the fit and its errors (docs/profiling.md). The rates of
arithmetic are relative to that of float32 without tensor cores. Where a kernel moves more bytes
than TensorFlow's cost model counts, its memory efficiency is low. Of a variable that an op updates,
the cost model counts the handle only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pesto_cli.data.machine import Efficiency


@dataclass(frozen=True)
class Family:
    """Op types with the same kind of kernel.

    has_products: whether their arithmetic takes time; else only their memory efficiency is fitted.
    """

    op_types: tuple[str, ...]
    efficiency: Efficiency
    has_products: bool = False


def _products(op_types: str, arithmetic: float, memory: float) -> Family:
    return Family(tuple(op_types.split()), Efficiency(arithmetic, memory), has_products=True)


def _moves(op_types: str, memory: float) -> Family:
    return Family(tuple(op_types.split()), Efficiency(1.0, memory))


# Direct depthwise kernels use no tensor cores, and are far from the peak of float32.
H100_FAMILIES: Mapping[str, Family] = {
    "products": _products("MatMul", 4.2, 1.0),
    "batches of products": _products("BatchMatMul BatchMatMulV2", 7.4, 0.63),
    "convolutions": _products("Conv2D Conv2DBackpropInput", 7.4, 0.66),
    "gradients of filters": _products("Conv2DBackpropFilter", 3.4, 0.49),
    "depthwise convolutions": _products("DepthwiseConv2dNative", 0.07, 0.39),
    "gradients of depthwise convolutions": _products(
        "DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter", 0.03, 0.24
    ),
    "batch normalisation": _moves("FusedBatchNormV3", 0.44),
    "gradients of batch normalisation": _moves("FusedBatchNormGradV3", 0.47),
    "maxima of windows": _moves("MaxPool MaxPoolGrad", 0.24),
    "means of windows": _moves("AvgPool", 0.19),
    "gradients of means of windows": _moves("AvgPoolGrad", 0.085),
    "activations": _moves(
        "Relu ReluGrad Relu6 Relu6Grad Tanh TanhGrad Sigmoid SigmoidGrad Neg Square Sqrt", 0.89
    ),
    "element by element": _moves("AddN AddV2 Add Mul Sub RealDiv BiasAdd", 0.75),
    "powers": _moves("Pow", 0.46),
    "reductions": _moves("Sum Mean Max BiasAddGrad L2Loss", 0.38),
    "copies": _moves(
        "Transpose ConcatV2 Slice StridedSlice Split Pack Unpack Pad StridedSliceGrad Tile", 0.61
    ),
    "updates by Adam and RMSProp": _moves("ResourceApplyAdam ResourceApplyRMSProp", 0.093),
}

# The cost model counts 4 of the 12 and 20 bytes of an element. No large ones were timed.
_UPDATES = {
    **dict.fromkeys(("ResourceApplyGradientDescent", "AssignSubVariableOp"), Efficiency(1.0, 0.25)),
    "AssignAddVariableOp": Efficiency(1.0, 0.25),
    "ResourceApplyMomentum": Efficiency(1.0, 0.15),
}

H100_EFFICIENCY: Mapping[str, Efficiency] = {
    **{
        op_type: family.efficiency
        for family in H100_FAMILIES.values()
        for op_type in family.op_types
    },
    **_UPDATES,
    "": H100_FAMILIES["element by element"].efficiency,
}
