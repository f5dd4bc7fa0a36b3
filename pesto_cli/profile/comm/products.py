"""Work for a device while its links are timed: products of matrices."""

import time
from collections.abc import Sequence
from typing import Any

from pesto_cli.apply import session_config
from pesto_cli.cluster import Connection
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.comm.chains import MIN_TURNS, NUM_WARM_UP

# Products of square matrices of so many rows; so many are timed to know how long one takes.
NUM_ROWS, NUM_TRIED = 256, 20


def products(name: str, device: str, count: int, after: Sequence[Any] = ()) -> Any:
    """A chain of products of square matrices on a device, for it to compute; the last op."""
    tf = tensorflow()
    with tf.device(device):
        matrix = variable(name, [NUM_ROWS, NUM_ROWS])
        with tf.control_dependencies(after):
            product = tf.identity(matrix)
        for _ in range(count):
            product = tf.matmul(product, matrix)
    return product.op


def variable(name: str, shape: list[int]) -> Any:
    """The value of a new variable."""
    tf1 = tensorflow().compat.v1
    zeros = tf1.zeros_initializer()
    return tf1.get_variable(name, shape, initializer=zeros, use_resource=True).read_value()


def product_us(connection: Connection, device: str) -> float:
    """What a product takes: the best of a few steps, less what a step without any takes."""
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
    """What a call takes."""
    began = time.perf_counter()
    step()
    return (time.perf_counter() - began) * 1e6
