"""Ops that combine the elements of one axis: softmax, cross entropy, top k, cumulative sums.

Factors: all axes of the first input but that one.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import WHOLE, Split

_LAST_AXIS = "Softmax LogSoftmax LRN LRNGrad TopKV2 NthElement"
_CROSS_ENTROPY = "SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits"
_IN_TOP_K = "InTopK InTopKV2"
_CUMULATIVE = "Cumsum Cumprod CumulativeLogsumexp"


def along_last_axis(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes but the last one. Scalar inputs, such as k, are whole."""
    yield from _split(spec, along=len(spec.inputs[0].sizes) - 1)


def along_axis_of_input(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes but the one in input 1."""
    axis, rank = spec.inputs[1].value, len(spec.inputs[0].sizes)
    if isinstance(axis, int):
        yield from _split(spec, along=axis % rank)


def of_examples(spec: OpSpec) -> Iterator[Alternative]:
    """Factor: the batch, axis 0 of the first output. Inputs of another size there are whole."""
    size = spec.outputs[0].sizes[0]
    inputs = tuple(
        Split(0) if operand.sizes and operand.sizes[0] == size else WHOLE for operand in spec.inputs
    )
    yield Alternative("batch", size, inputs, (Split(0),) * len(spec.outputs))


def _split(spec: OpSpec, along: int) -> Iterator[Alternative]:
    for axis, size in enumerate(spec.inputs[0].sizes):
        if axis != along:
            split = Split(axis)
            inputs = tuple(split if operand.sizes else WHOLE for operand in spec.inputs)
            yield Alternative(f"axis {axis}", size, inputs, (split,) * len(spec.outputs))


RULES: dict[str, Rule] = {
    **dict.fromkeys(_LAST_AXIS.split(), along_last_axis),
    **dict.fromkeys(_CUMULATIVE.split(), along_axis_of_input),
    **dict.fromkeys((*_CROSS_ENTROPY.split(), *_IN_TOP_K.split()), of_examples),
}
