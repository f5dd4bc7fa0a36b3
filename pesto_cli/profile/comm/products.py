"""Matrix products: the computation of a device while its links are timed."""

import time
from collections.abc import Sequence
from typing import Any

from pesto_cli.apply import session_config
from pesto_cli.cluster import Connection
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.comm.chains import MIN_TURNS, NUM_WARM_UP

# Rows of the square matrices; number of products that are timed to find the time of one.
NUM_ROWS, NUM_TRIED = 256, 20


def products(name: str, device: str, count: int, after: Sequence[Any] = ()) -> Any:
    """Build a chain of `count` matrix products on a device, which starts after the ops `after`.

    Return its last op.
    """
    tf = tensorflow()
    with tf.device(device):
        matrix = variable(name, [NUM_ROWS, NUM_ROWS])
        with tf.control_dependencies(after):
            product = tf.identity(matrix)
        for _ in range(count):
            product = tf.matmul(product, matrix)
    return product.op


def variable(name: str, shape: list[int]) -> Any:
    """Create a variable of zeros and return its value."""
    tf1 = tensorflow().compat.v1
    zeros = tf1.zeros_initializer()
    return tf1.get_variable(name, shape, initializer=zeros, use_resource=True).read_value()


def product_us(connection: Connection, device: str) -> float:
    """Return the time of one product in us, at least 1.

    It follows from the fastest steps with NUM_TRIED products and without any.
    """
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default() as graph:
        ends = [products(f"matrix_{count}", device, count) for count in (0, NUM_TRIED)]
        start = tf1.global_variables_initializer()
    with connection.session(graph, session_config()) as session:
        session.run(start)
        none_us, all_us = (
            min(timed_us(step) for _ in range(NUM_WARM_UP + MIN_TURNS))
            for step in map(session.make_callable, ends)
        )
    return max(1.0, (all_us - none_us) / NUM_TRIED)


def timed_us(step: Any) -> float:
    """Return the time of a call in us."""
    began = time.perf_counter()
    step()
    return (time.perf_counter() - began) * 1e6
