"""Ops of TensorFlow as calls of PyTorch that launch the same kind of kernel.

`KERNELS` maps an op type to a function that takes a `Case`, and returns a call of its input
tensors. Images and filters are in `channels_last`, which is TensorFlow's NHWC: with TF32, it
computes float32 convolutions in this layout (`ComputeInNhwcEnabled` in its conv_ops_gpu.h).
Depthwise convolutions and pooling have images in NCHW, for which PyTorch's own kernels are made.
Where PyTorch has no call of one kernel, one is compiled from its formula.

What the calls leave out: TensorFlow transposes the images of a float32 batch normalisation in NHWC,
and the filters of a convolution, in each call; it computes convolutions with 1 x 1 filters as
products; its depthwise convolutions are its own kernels, and its pooling is that of cuDNN.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as nn

aten = torch.ops.aten
Call = Callable[..., Any]
MOST_INPUTS = 8
"""Inputs of one compiled kernel. Those of TensorFlow's AddN add 8 tensors to a sum."""


@dataclass(frozen=True)
class Case:
    """An op. inputs, outputs: shape, data type and value of each operand, as in `OpSpec`.

    device: of PyTorch.
    """

    type: str
    attributes: Mapping[str, Any]
    inputs: Sequence[Mapping[str, Any]]
    outputs: Sequence[Mapping[str, Any]]
    device: str = "cuda"

    def shape(self, slot: int) -> tuple[int, ...]:
        """Return the shape of an input."""
        return tuple(self.inputs[slot]["shape"])

    def values(self, slot: int) -> tuple[int, ...]:
        """Return the value of an input that is a constant of numbers."""
        value = self.inputs[slot]["value"]
        return tuple(value) if isinstance(value, list) else (value,)

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the first output."""
        return tuple(self.outputs[0]["shape"])


@dataclass(frozen=True)
class Window:
    """How a convolution or pooling op moves over images; two numbers each: of rows, of columns.

    padding: what is added on both sides. extra_after: what is added after the images in addition,
        by a kernel of its own, as TensorFlow does for convolutions.
    """

    strides: tuple[int, int]
    dilations: tuple[int, int]
    padding: tuple[int, int]
    extra_after: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, case: Case, image: Sequence[int], size: Sequence[int]) -> "Window":
        """Return the window of a case. image: shape in NHWC. size: begins with rows, columns.

        Only Conv2D and its gradients have `extra_after`. The kernels of other ops can add more on
        one side than on the other; for them, the same is added on both sides, which may add a row.
        """
        strides = tuple(case.attributes["strides"][1:3])
        dilations = tuple(case.attributes.get("dilations", (1, 1, 1, 1))[1:3])
        totals = [0, 0]
        if case.attributes["padding"] == "SAME":
            for axis in (0, 1):
                extent, step = image[1 + axis], strides[axis]
                reach = dilations[axis] * (size[axis] - 1) + 1
                totals[axis] = max(0, (-(-extent // step) - 1) * step + reach - extent)
        if case.type.startswith("Conv2D"):
            padding = totals[0] // 2, totals[1] // 2
            return cls(strides, dilations, padding, (totals[0] % 2, totals[1] % 2))
        return cls(strides, dilations, (-(-totals[0] // 2), -(-totals[1] // 2)))

    def padded(self, images: Any) -> Any:
        """Return images in NCHW with what is added after them."""
        if not any(self.extra_after):
            return images
        return nn.pad(images, (0, self.extra_after[1], 0, self.extra_after[0]))


def nchw(images: Any) -> Any:
    """Return images in NHWC as a view in NCHW, which has the layout channels_last."""
    return images.permute(0, 3, 1, 2)


def as_nchw(images: Any) -> Any:
    """Reinterpret random images in NHWC as images in NCHW, without a copy."""
    batch, height, width, channels = images.shape
    return images.view(batch, channels, height, width)


def filters(shape: Sequence[int], depthwise: bool, device: str) -> Any:
    """Return filters of [H, W, in, out] as PyTorch's [out, in of a group, H, W]."""
    height, width, inward, outward = shape
    if depthwise:
        return torch.randn(inward * outward, 1, height, width, device=device)
    kernel = torch.randn(outward, inward, height, width, device=device)
    return kernel.contiguous(memory_format=torch.channels_last)


def convolution(part: str) -> Callable[[Case], Call]:
    """Return the maker of a convolution, or of its gradient for the images or for the filters."""

    def make(case: Case) -> Call:
        image = case.result if part == "images" else case.shape(0)
        kernel = case.result if part == "filters" else case.shape(1)
        depthwise = case.type.startswith("Depthwise")
        layout = as_nchw if depthwise else nchw
        groups = image[3] if depthwise else image[3] // kernel[2]
        window = Window.of(case, image, kernel)
        arguments = (window.strides, window.padding, window.dilations)
        weights = filters(kernel, depthwise, case.device)
        stand_in = window.padded(layout(torch.randn(image, device=case.device)))

        def forward(images: Any, _: Any) -> Any:
            return nn.conv2d(window.padded(layout(images)), weights, None, *arguments, groups)

        # With the padding of both sides, a depthwise result may have a row more than the gradient.
        result = nn.conv2d(stand_in, weights, None, *arguments, groups) if depthwise else None

        def backward(gradient: Any, images: Any, wanted: Sequence[bool]) -> Any:
            given = layout(gradient) if result is None else result
            return aten.convolution_backward(
                given, images, weights, None, *arguments, False, (0, 0), groups, wanted
            )

        if part == "forward":
            return forward
        if part == "images":
            return lambda _, kernel, gradient: backward(gradient, stand_in, (True, False, False))
        return lambda images, _, gradient: backward(
            gradient, window.padded(layout(images)), (False, True, False)
        )

    return make


def pooled_by(case: Case, image: Sequence[int]) -> tuple[Sequence[int], ...]:
    """Return the size, strides and padding of the windows. image: its shape, in NHWC."""
    size = case.attributes["ksize"][1:3]
    window = Window.of(case, image, size)
    return size, window.strides, window.padding


def max_pool(case: Case) -> Call:
    """The largest element of each window."""
    sizes = pooled_by(case, case.shape(0))
    return lambda images: nn.max_pool2d(as_nchw(images), *sizes)


def avg_pool(case: Case) -> Call:
    """The mean of each window, without what padding adds."""
    sizes = pooled_by(case, case.shape(0))
    return lambda images: nn.avg_pool2d(as_nchw(images), *sizes, count_include_pad=False)


def max_pool_gradient(case: Case) -> Call:
    """The gradient of the images for given places of the largest elements."""
    sizes = pooled_by(case, case.shape(0))
    # With the padding of both sides, there may be a row more than in the gradient.
    pooled, indices = aten.max_pool2d_with_indices(
        as_nchw(torch.randn(case.shape(0), device=case.device)), *sizes
    )
    return lambda images, *_: aten.max_pool2d_with_indices_backward(
        pooled, as_nchw(images), *sizes, (1, 1), False, indices
    )


def avg_pool_gradient(case: Case) -> Call:
    """The gradient of the images."""
    sizes = pooled_by(case, case.result)
    images = as_nchw(torch.randn(case.result, device=case.device))
    pooled = nn.avg_pool2d(images, *sizes)
    return lambda *_: aten.avg_pool2d_backward(pooled, images, *sizes, False, False, None)


def batch_norm(case: Case) -> Call:
    """Batch normalisation by the mean and the variance of the batch, as in training."""
    epsilon = case.attributes["epsilon"]
    return lambda images, scale, offset, *_: torch.batch_norm(
        nchw(images), scale, offset, None, None, True, 0.0, epsilon, True
    )


def batch_norm_gradient(case: Case) -> Call:
    """The gradients of batch normalisation: on a GPU by cuDNN; on a CPU, for trials, by PyTorch."""
    epsilon = case.attributes["epsilon"]
    images = nchw(torch.randn(case.shape(1), device=case.device))
    scale = torch.randn(case.shape(2), device=case.device)
    if case.device == "cuda":
        _, mean, inverse, reserve = aten.cudnn_batch_norm(
            images, scale, scale, None, None, True, 0.0, epsilon
        )
        return lambda gradient, images, scale, *_: aten.cudnn_batch_norm_backward(
            nchw(images), nchw(gradient), scale, None, None, mean, inverse, epsilon, reserve
        )
    _, mean, inverse = aten.native_batch_norm(images, scale, scale, None, None, True, 0.0, epsilon)
    return lambda gradient, images, scale, *_: aten.native_batch_norm_backward(
        nchw(gradient), nchw(images), scale, None, None, mean, inverse, True, epsilon, [True] * 3
    )


def product(case: Case) -> Call:
    """A product of matrices or batches of them, with either one transposed or not."""
    first = case.attributes.get("transpose_a", case.attributes.get("adj_x", False))
    second = case.attributes.get("transpose_b", case.attributes.get("adj_y", False))
    return lambda a, b: torch.matmul(a.mT if first else a, b.mT if second else b)


def compiled(formula: str, names: str) -> Call:
    """Return one kernel that computes a formula of the elements of some tensors."""
    arguments = ", ".join(f"T {name}" for name in names.split())
    code = f"template <typename T> T computed({arguments}) {{ return {formula}; }}"
    call: Call = torch.cuda.jiterator._create_jit_fn(code)
    return call


def sum_of_many(case: Case) -> Call:
    """AddN: as many inputs as one kernel takes are added at once."""
    if len(case.inputs) == 1:
        return lambda one: one.clone()
    names = [f"x{index}" for index in range(MOST_INPUTS)]
    add_of = {
        n: compiled(" + ".join(names[:n]), " ".join(names[:n])) for n in range(2, MOST_INPUTS + 1)
    }

    def call(*tensors: Any) -> Any:
        total, rest = tensors[0], tensors[1:]
        while rest:
            taken = (total, *rest[: MOST_INPUTS - 1])
            total, rest = add_of[len(taken)](*taken), rest[MOST_INPUTS - 1 :]
        return total

    return call


def reduction(call: Call) -> Callable[[Case], Call]:
    """Return the maker of a reduction of the axes in slot 1."""

    def make(case: Case) -> Call:
        axes = case.values(1)
        keep = bool(case.attributes.get("keep_dims", False))
        return lambda tensor, _: call(tensor, axes, keep)

    return make


def strided_slice(case: Case) -> Call:
    """A range of each axis, with steps of 1."""
    begins, shape = case.values(1), case.shape(0)
    if len(case.result) != len(shape):
        raise NotImplementedError("a slice that drops an axis")
    starts = [
        min(max(0, begin or 0), size - part)
        for begin, size, part in zip(begins, shape, case.result, strict=True)
    ]

    def call(tensor: Any, *_: Any) -> Any:
        for axis, (start, part) in enumerate(zip(starts, case.result, strict=True)):
            tensor = tensor.narrow(axis, start, part)
        return tensor.clone(memory_format=torch.contiguous_format)

    return call


def padded_back(case: Case) -> Call:
    """StridedSliceGrad: zeros around the gradient of the range."""
    given = case.shape(4)
    after = [size - part for size, part in zip(case.result, given, strict=True)]
    widths = [width for size in reversed(after) for width in (0, size)]
    return lambda *tensors: nn.pad(tensors[4], widths)


def pad(case: Case) -> Call:
    """Zeros before and after each axis."""
    widths = [int(width) for pair in reversed(case.inputs[1]["value"]) for width in pair]
    return lambda tensor, _: nn.pad(tensor, widths)


def transpose(case: Case) -> Call:
    """Another order of the axes, in memory."""
    order = case.values(1)
    return lambda tensor, _: tensor.permute(order).clone(memory_format=torch.contiguous_format)


def split(case: Case) -> Call:
    """Equal ranges of an axis, copied by one kernel."""
    axis, size = case.values(0)[0], case.shape(1)[case.values(0)[0]] // len(case.outputs)
    sizes = [size] * len(case.outputs)
    return lambda _, tensor: torch.split_with_sizes_copy(tensor, sizes, axis)


def rms_prop(case: Case) -> Call:
    """RMSProp with momentum, which updates three variables."""
    formula = """template <typename T> void computed(
        T v, T s, T m, T g, T& v2, T& s2, T& m2) {
        s2 = s + (g * g - s) * T(0.1);
        m2 = m * T(0.9) + g * T(0.01) * rsqrt(s2 + T(1));
        v2 = v - m2; }"""
    call = torch.cuda.jiterator._create_multi_output_jit_fn(formula, num_outputs=3)
    return lambda variable, square, momentum, *rest: call(variable, square, momentum, rest[-1])


def adam(case: Case) -> Call:
    """Adam, which updates a variable and its two moments in one kernel."""
    step = [torch.ones((), device=case.device)]

    def call(variable: Any, first: Any, second: Any, *rest: Any) -> Any:
        return torch._fused_adam_(
            [variable], [rest[-1]], [first], [second], [], step, lr=1e-9, beta1=0.9, beta2=0.99,
            weight_decay=0.0, eps=1.0, amsgrad=False, maximize=False,
        )  # fmt: skip

    return call


def momentum(case: Case) -> Call:
    """Gradient descent with momentum, which updates two variables in one kernel."""
    return lambda variable, slot, _, gradient, *rest: torch._fused_sgd_(
        [variable], [gradient], [slot], weight_decay=0.0, momentum=0.9, lr=1e-9, dampening=0.0,
        nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip


def always(call: Call) -> Callable[[Case], Call]:
    """Return the maker of a call that is the same for all cases of a type."""
    return lambda case: call


KERNELS: Mapping[str, Callable[[Case], Call]] = {
    "MatMul": product,
    "BatchMatMulV2": product,
    "Conv2D": convolution("forward"),
    "Conv2DBackpropInput": convolution("images"),
    "Conv2DBackpropFilter": convolution("filters"),
    "DepthwiseConv2dNative": convolution("forward"),
    "DepthwiseConv2dNativeBackpropInput": convolution("images"),
    "DepthwiseConv2dNativeBackpropFilter": convolution("filters"),
    "FusedBatchNormV3": batch_norm,
    "FusedBatchNormGradV3": batch_norm_gradient,
    "MaxPool": max_pool,
    "MaxPoolGrad": max_pool_gradient,
    "AvgPool": avg_pool,
    "AvgPoolGrad": avg_pool_gradient,
    "Mul": always(torch.mul),
    "AddV2": always(torch.add),
    "Sub": always(torch.sub),
    "RealDiv": always(torch.div),
    "Pow": always(torch.pow),
    "Neg": always(torch.neg),
    "Square": always(torch.square),
    "Sqrt": always(torch.sqrt),
    "Rsqrt": always(torch.rsqrt),
    "RsqrtGrad": lambda case: compiled("T(-0.5) * dy * y * y * y", "y dy"),
    "Tanh": always(torch.tanh),
    "TanhGrad": always(lambda y, dy: aten.tanh_backward(dy, y)),
    "Sigmoid": always(torch.sigmoid),
    "SigmoidGrad": always(lambda y, dy: aten.sigmoid_backward(dy, y)),
    "Relu": always(torch.relu),
    "ReluGrad": always(lambda dy, x: aten.threshold_backward(dy, x, 0)),
    "Relu6": always(lambda x: aten.hardtanh(x, 0, 6)),
    "Relu6Grad": always(lambda dy, x: aten.hardtanh_backward(dy, x, 0, 6)),
    "BiasAdd": always(torch.add),
    "BiasAddGrad": always(lambda dy: dy.flatten(0, -2).sum(0)),
    "AddN": sum_of_many,
    "Sum": reduction(lambda x, axes, keep: x.sum(axes, keep)),
    "Mean": reduction(lambda x, axes, keep: x.mean(axes, keep)),
    "L2Loss": always(torch.linalg.vector_norm),
    "Softmax": always(lambda x: torch.softmax(x, -1)),
    "Transpose": transpose,
    "ConcatV2": lambda case: lambda *x: torch.cat(x[:-1], case.values(len(x) - 1)[0]),
    "Slice": strided_slice,
    "StridedSlice": strided_slice,
    "StridedSliceGrad": padded_back,
    "Split": split,
    "Tile": lambda case: lambda x, _: x.repeat(case.values(1)),
    "Pad": pad,
    "ResourceApplyMomentum": momentum,
    "ResourceApplyAdam": adam,
    "ResourceApplyRMSProp": rms_prop,
    "AssignSubVariableOp": always(lambda v, x: v.sub_(x)),
}
