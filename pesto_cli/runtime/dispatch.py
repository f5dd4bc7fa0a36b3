"""Measure the dispatch of a step: the time of the client's call without any op that computes."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pesto_cli.apply import session_config
from pesto_cli.cluster import Connection
from pesto_cli.data.graph import FloatArray
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.runtime.feeds import batches

NUM_WARM_UP = 10


def empty_step_us(
    connection: Connection,
    meta: Any,
    devices: Sequence[str],
    host: str,
    num_steps: int,
    feeds: str | None = None,
) -> FloatArray:
    """`[num_steps]`: time of a step that only receives the feeds of a MetaGraphDef.

    devices: pesto's names of the devices that take part.
    host: pesto's name of the device that receives the feeds.
    """
    tf = tensorflow()
    batch = next(batches(meta, feeds))
    with tf.Graph().as_default() as graph:
        ops, feed_dict = [], {}
        for device in devices:
            with tf.device(connection.device_names[device]):
                ops.append(tf.no_op())
        with tf.device(connection.device_names[host]):
            for array in batch.values():
                placeholder = tf.compat.v1.placeholder(tf.as_dtype(array.dtype), array.shape)
                feed_dict[placeholder] = array
                ops.append(tf.identity(placeholder).op)
        with connection.session(graph, session_config()) as session:
            us = []
            for _ in range(NUM_WARM_UP + num_steps):
                began = time.perf_counter()
                session.run(ops, feed_dict)
                us.append((time.perf_counter() - began) * 1e6)
    return np.array(us[NUM_WARM_UP:])
