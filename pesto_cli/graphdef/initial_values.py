"""Add initial values to a graph for variables that existed outside it."""

import math
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

EMBEDDED_BYTES = 128 * 2**20
"""Values of up to this size in total are written into the graph; a protocol buffer holds 2 GiB."""

SCALAR = 0.001
"""Initial value of a floating-point scalar without a known value."""

Builder = Callable[[], Any]
"""Function that builds the initial tensor of one variable in the default graph."""

log = logger(__name__)


def initial_values(values: Mapping[str, Any]) -> dict[str, Builder]:
    """Return for each variable's value (numpy array) a function that builds its initial tensor.

    An array of equal values becomes a Fill. The other arrays become constants if they have at most
    EMBEDDED_BYTES in total. Otherwise, floating-point arrays are drawn at random, with the mean and
    standard deviation of the real values and one seed per variable, and a warning is logged. The
    step costs the same, and a checkpoint can restore the real values.
    """
    tf = tensorflow()
    varied = {name for name, value in values.items() if (value != value.flat[:1]).any()}
    num_bytes = sum(values[name].nbytes for name in varied)
    drawn: set[str] = set()
    if num_bytes > EMBEDDED_BYTES:
        drawn = {name for name in varied if tf.as_dtype(values[name].dtype).is_floating}
        log.warning(
            "%d variables with %d MiB of values are too large for the graph: they are initialised"
            " at random, with the same mean and standard deviation.",
            len(drawn),
            num_bytes // 2**20,
        )
    return {name: partial(_tensor, name, value, varied, drawn) for name, value in values.items()}


def drawn_values(variables: Mapping[str, Any]) -> dict[str, Builder]:
    """Return builders of random initial values for variables of which only the TensorSpec is known.

    Weights are drawn from [0, 2 / fan_in), where fan_in is the product of all dimensions but the
    last: so activations stay of the same magnitude from layer to layer. They are not negative,
    because programs take the square root of variances and of optimiser slots. Vectors are drawn
    from [0, 1), scalars are 0.001 (a learning rate), and values of other than floating-point types
    are 0.
    """
    return {name: partial(_drawn, name, spec) for name, spec in variables.items()}


def add_initialisers(graph: Any, builders: Mapping[str, Builder]) -> None:
    """Add an initialiser and a read for each variable, named as TensorFlow 1 names them.

    graph: the default tf.Graph. builders: name of the variable's handle -> builder of its value.
    """
    tf = tensorflow()
    for name, build in builders.items():
        handle = graph.get_tensor_by_name(f"{name}:0")
        with tf.name_scope(f"{name}/Initializer/"):
            value = build()
        present = {operation.name for operation in graph.get_operations()}
        tf.raw_ops.AssignVariableOp(resource=handle, value=value, name=f"{name}/Assign")
        read = f"{name}/Read/ReadVariableOp"
        if read not in present:
            tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype, name=read)


def _tensor(name: str, value: Any, varied: set[str], drawn: set[str]) -> Any:
    tf = tensorflow()
    if name in drawn:
        seed = _seed(name)
        mean, deviation = float(value.mean()), float(value.std())
        return tf.random.stateless_normal(value.shape, seed, mean, deviation, value.dtype)
    if name in varied or value.size <= 1:
        return tf.constant(value)
    return tf.fill(value.shape, tf.constant(value.flat[0]))


def _drawn(name: str, spec: Any) -> Any:
    tf = tensorflow()
    if not spec.dtype.is_floating:
        return tf.zeros(spec.shape, spec.dtype)
    if spec.shape.rank == 0:
        return tf.constant(SCALAR, spec.dtype)
    fan_in = max(1, math.prod(spec.shape.as_list()[:-1])) if spec.shape.rank > 1 else 2
    return tf.random.stateless_uniform(spec.shape, _seed(name), 0.0, 2 / fan_in, spec.dtype)


def _seed(name: str) -> tuple[int, int]:
    """Return a seed that depends on the variable's name only."""
    return 0, zlib.crc32(name.encode()) >> 1
