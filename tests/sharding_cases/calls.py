"""Calls of functions: layers, gradients, nested calls, shapes of arguments, known arguments."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from sharding_calls import called
from sharding_ops import Case, known
from sharding_tensors import shapes, sizes, tensors

from pesto_cli.graphdef.tensorflow import tensorflow

tf = tensorflow()


@st.composite
def layer(draw: st.DrawFn, op_type: str) -> Case:
    """A dense layer that also returns its inputs, as a function for a gradient does."""
    rows, into, out = draw(sizes), draw(sizes), draw(sizes)
    arguments = [draw(tensors(shape)) for shape in ((rows, into), (into, out), (out,))]

    def dense(x: Any, kernel: Any, bias: Any) -> Any:
        return tf.nn.relu(tf.matmul(x, kernel) + bias), x, kernel

    return called(op_type, dense, *arguments)


@st.composite
def gradient(draw: st.DrawFn, op_type: str) -> Case:
    """The gradients of a convolution, with the shapes of images and filter from the arguments."""
    batch, into, out = draw(sizes), draw(sizes), draw(sizes)
    images, kernel, results = (batch, 4, 4, into), (3, 3, into, out), (batch, 4, 4, out)
    arguments = [draw(tensors(shape)) for shape in (results, images, kernel)]

    def gradients(results: Any, images: Any, kernel: Any) -> Any:
        computed = tf.nn.conv2d(images, kernel, 1, "SAME")
        return tf.gradients(computed, [kernel, images], results)

    return called(op_type, gradients, *arguments)


@st.composite
def reshaped(draw: st.DrawFn, op_type: str) -> Case:
    """Softmax of rows; a constant has the number of columns, and maybe that of the rows.

    The function may also return the shape of its argument, which parts cannot.
    """
    rows, columns = draw(sizes), draw(sizes)
    number = draw(st.sampled_from((-1, -1, rows * 2)))
    with_shape = draw(st.sampled_from((False, False, True)))

    def softmax(x: Any) -> Any:
        result = tf.nn.softmax(tf.reshape(x, [number, columns]))
        return (result, tf.raw_ops.Shape(input=x, out_type=tf.int64)) if with_shape else result

    return called(op_type, softmax, draw(tensors((rows, 2, columns))))


@st.composite
def nested(draw: st.DrawFn, op_type: str) -> Case:
    """A function that calls a function; a chain of ops on other arguments."""
    shape = draw(shapes(1, 3))
    inner = tf.function(lambda x, y: (tf.tanh(x) * y, tf.reduce_sum(y, 0)))

    def outer(x: Any, y: Any, z: Any) -> Any:
        product, total = inner(x, y)
        return -product, total, tf.exp(z) + 1

    arguments = [draw(tensors(shape)), draw(tensors(shape)), draw(tensors((shape[0], 2)))]
    return called(op_type, outer, *arguments)


@st.composite
def sums(draw: st.DrawFn, op_type: str) -> Case:
    """Sums along an axis that is an argument, scaled, and a maximum."""
    axis, shape = draw(st.integers(0, 1)), draw(shapes(2, 3))

    def summed(x: Any, axis: Any) -> Any:
        return 2 * tf.reduce_sum(x, axis), tf.reduce_max(x, 0)

    return called(op_type, summed, draw(tensors(shape)), known(axis))


@st.composite
def like(draw: st.DrawFn, op_type: str) -> Case:
    """Tensors of the shape of an argument, and of that of a result."""
    shape = draw(shapes(1, 3))

    def filled(x: Any, y: Any) -> Any:
        shape = tf.raw_ops.Shape(input=x)
        ones = tf.raw_ops.Fill(dims=shape, value=tf.constant(1.0, tf.float64))
        again = tf.raw_ops.Shape(input=ones + x)
        return ones, tf.raw_ops.Reshape(tensor=y, shape=again)

    return called(op_type, filled, draw(tensors(shape)), draw(tensors(shape)))


_KINDS: tuple[Callable[[str], SearchStrategy[Case]], ...] = (
    layer,
    gradient,
    reshaped,
    nested,
    sums,
    like,
)
CASES = {
    op_type: st.one_of(*(kind(op_type) for kind in _KINDS))
    for op_type in ("PartitionedCall", "StatefulPartitionedCall")
}
