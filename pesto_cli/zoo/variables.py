"""Create variables whose initial values depend only on their name, shape and seed."""

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow


def uniform(name: str, shape: Sequence[int], *, scale: float, seed: int) -> Any:
    """Return a float32 variable with initial values uniform in [-scale, scale).

    The random op is stateless, with a seed from the variable's full name. So two builds of a model
    have the same initial values, on any device and in any order of initialisation.
    """
    tf = tensorflow()
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    key = zlib.crc32(f"{scope}/{name}".encode()) >> 1
    return _variable(
        name,
        lambda: tf.random.stateless_uniform(shape, (seed, key), minval=-scale, maxval=scale),
    )


def glorot(name: str, shape: Sequence[int], *, seed: int) -> Any:
    """Return a float32 weight [fan_in, fan_out] after Glorot and Bengio (2010), equation 16."""
    return uniform(name, shape, scale=math.sqrt(6 / sum(shape)), seed=seed)


def filled(name: str, shape: Sequence[int], value: float, *, trainable: bool = True) -> Any:
    """Return a float32 variable whose elements are initially `value`."""
    tf = tensorflow()
    return _variable(name, lambda: tf.fill(shape, value), trainable=trainable)


def _variable(name: str, initial_value: Callable[[], Any], *, trainable: bool = True) -> Any:
    tf1 = tensorflow().compat.v1
    return tf1.Variable(initial_value, name=name, use_resource=True, trainable=trainable)
