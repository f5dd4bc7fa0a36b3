"""Softmax, cross entropy, top k, normalisation over channels, cumulative sums."""

import numpy as np
from hypothesis import strategies as st
from sharding_ops import Array, Case, case, known
from sharding_tensors import shapes, sizes, tensors


@st.composite
def softmax(draw: st.DrawFn, op_type: str) -> Case:
    return case(op_type, draw(tensors(draw(shapes(min_rank=1)))))


@st.composite
def largest(draw: st.DrawFn, op_type: str) -> Case:
    shape = draw(shapes(min_rank=1))
    array, k = draw(tensors(shape)), draw(st.integers(1, shape[-1]))
    return case(op_type, array, known(k - 1 if op_type == "NthElement" else k))


@st.composite
def response_normalisation(draw: st.DrawFn, op_type: str) -> Case:
    shape = tuple(draw(sizes) for _ in range(4))
    count = 3 if op_type == "LRNGrad" else 1
    arrays = [draw(tensors(shape, "float32", 0.1)) for _ in range(count)]
    return case(op_type, *arrays, depth_radius=draw(st.integers(1, 2)))


@st.composite
def cross_entropy(draw: st.DrawFn) -> Case:
    batch, classes = draw(sizes), draw(sizes)
    logits, labels = draw(st.sampled_from(((batch, batch), (batch, batch), (1, batch), (batch, 1))))
    return case(
        "SoftmaxCrossEntropyWithLogits",
        draw(tensors((logits, classes))),
        draw(tensors((labels, classes), low=0, high=1)),
    )


@st.composite
def sparse_cross_entropy(draw: st.DrawFn) -> Case:
    logits, labels = draw(examples("float64"))
    return case("SparseSoftmaxCrossEntropyWithLogits", logits, labels)


@st.composite
def in_top_k(draw: st.DrawFn, op_type: str) -> Case:
    predictions, targets = draw(examples("float32"))
    k = draw(st.integers(1, 3))
    if op_type == "InTopK":
        return case(op_type, predictions, targets, k=k)
    return case(op_type, predictions, targets, known(k))


@st.composite
def examples(draw: st.DrawFn, dtype: str) -> tuple[Array, Array]:
    """Draw numbers `[batch, classes]` and a class of each example."""
    batch, classes = draw(sizes), draw(sizes)
    labels = [draw(st.integers(0, classes - 1)) for _ in range(batch)]
    return draw(tensors((batch, classes), dtype)), np.array(labels, "int32")


@st.composite
def cumulative(draw: st.DrawFn, op_type: str) -> Case:
    shape = draw(shapes(min_rank=1))
    axis = known(draw(st.integers(-len(shape), len(shape) - 1)))
    exclusive, reverse = draw(st.booleans()), draw(st.booleans())
    return case(op_type, draw(tensors(shape)), axis, exclusive=exclusive, reverse=reverse)


CASES = {
    **{name: softmax(name) for name in ("Softmax", "LogSoftmax")},
    **{name: largest(name) for name in ("TopKV2", "NthElement")},
    **{name: response_normalisation(name) for name in ("LRN", "LRNGrad")},
    "SoftmaxCrossEntropyWithLogits": cross_entropy(),
    "SparseSoftmaxCrossEntropyWithLogits": sparse_cross_entropy(),
    **{name: in_top_k(name) for name in ("InTopK", "InTopKV2")},
    **{name: cumulative(name) for name in ("Cumsum", "Cumprod", "CumulativeLogsumexp")},
}
