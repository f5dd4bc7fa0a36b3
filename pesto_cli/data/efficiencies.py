"""Measured efficiencies of families of ops on an H100 with TF32.

`python -m benchmarks.gpu_ops.table` prints their fit and its errors (docs/profiling.md). The rates
of arithmetic are relative to that of float32 without tensor cores. Where a kernel moves more bytes
than TensorFlow's cost model counts, its memory efficiency is low. For an op that updates variables,
the model counts only the handles and the gradient.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pesto_cli.data.machine import Efficiency


@dataclass(frozen=True)
class Family:
    """Op types with the same kind of kernel.

    If `arithmetic` is 1 or `start_us` is 0, it was not fitted, because no other value makes the
    estimates clearly better.
    """

    op_types: tuple[str, ...]
    efficiency: Efficiency


def _family(op_types: str, memory: float, arithmetic: float = 1.0, start_us: float = 0.0) -> Family:
    return Family(tuple(op_types.split()), Efficiency(arithmetic, memory, start_us))


# 7.4 is the peak of TF32 on tensor cores, relative to float32. Where the fit ends there, nearly all
# the time is that of the memory and the start. Depthwise kernels use no tensor cores.
H100_FAMILIES: Mapping[str, Family] = {
    "products": _family("MatMul", 0.92, 7.3, 6.2),
    "batches of products": _family("BatchMatMul BatchMatMulV2", 0.88, 7.4, 2.3),
    "convolutions": _family("Conv2D Conv2DBackpropInput", 0.89, 7.4, 7.8),
    "gradients of filters": _family("Conv2DBackpropFilter", 0.86, 3.05, 10.1),
    "depthwise convolutions": _family("DepthwiseConv2dNative", 0.45, 0.065),
    "gradients of depthwise convolutions": _family(
        "DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter", 0.36, 0.023
    ),
    "batch normalisation": _family("FusedBatchNormV3", 0.47, start_us=4.3),
    "gradients of batch normalisation": _family("FusedBatchNormGradV3", 0.49, start_us=2.3),
    "maxima of windows": _family("MaxPool MaxPoolGrad", 0.26),
    "means of windows": _family("AvgPool", 0.19),
    "gradients of means of windows": _family("AvgPoolGrad", 0.085),
    "activations": _family(
        "Relu ReluGrad Relu6 Relu6Grad Tanh TanhGrad Sigmoid SigmoidGrad Neg Square Sqrt", 0.87
    ),
    "element by element": _family("AddN AddV2 Add Mul Sub RealDiv BiasAdd", 0.76),
    "powers": _family("Pow", 0.46),
    "reductions": _family("Sum Mean Max BiasAddGrad L2Loss", 0.37),
    "copies": _family(
        "Transpose ConcatV2 Slice StridedSlice Split Pack Unpack Pad StridedSliceGrad Tile",
        0.72,
        start_us=2.6,
    ),
    "updates by Adam and RMSProp": _family("ResourceApplyAdam ResourceApplyRMSProp", 0.093),
}

# The model counts 4 of the 12 bytes of an element (20 with momentum). No large update was timed:
# the memory efficiency of ops element by element is assumed.
_UPDATES = {
    "ResourceApplyGradientDescent": Efficiency(memory=0.25),
    "AssignSubVariableOp": Efficiency(memory=0.25),
    "AssignAddVariableOp": Efficiency(memory=0.25),
    "ResourceApplyMomentum": Efficiency(memory=0.15),
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
