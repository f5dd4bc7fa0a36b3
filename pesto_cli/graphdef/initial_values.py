"""Initial values of variables that existed outside the graph, put into it."""

import logging
import zlib
from collections.abc import Mapping
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow

EMBEDDED_BYTES = 128 * 2**20
"""Values up to this sum are written into the graph; a protocol buffer may have 2 GiB."""

log = logging.getLogger(__name__)


def initial_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each variable's value (numpy array) a function that builds its initial tensor.

    Values that are all the same become a Fill. The others become constants as long as they sum
    to at most EMBEDDED_BYTES. Beyond that floating-point ones are drawn at random, with the mean
    and deviation of the real ones and a seed of their own: the step costs the same, and a
    checkpoint brings the real values. A warning says so.
    """
    import numpy as np

    varied = {name for name, value in values.items() if value.size > 1 and np.ptp(value) > 0}
    num_bytes = sum(values[name].nbytes for name in varied)
    drawn: set[str] = set()
    if num_bytes > EMBEDDED_BYTES:
        drawn = {name for name in varied if values[name].dtype.kind == "f"}
        log.warning(
            "%d variables with %d MiB of values are too large for the graph: they are initialised"
            " at random, with the same mean and deviation.",
            len(drawn),
            num_bytes // 2**20,
        )
    return {
        name: (lambda name=name, value=value: _tensor(name, value, varied, drawn))
        for name, value in values.items()
    }


def _tensor(name: str, value: Any, varied: set[str], drawn: set[str]) -> Any:
    tf = tensorflow()
    if name in drawn:
        seed = (0, zlib.crc32(name.encode()) >> 1)
        mean, deviation = float(value.mean()), float(value.std())
        return tf.random.stateless_normal(value.shape, seed, mean, deviation, value.dtype)
    if name in varied or value.size <= 1 or value.dtype.kind not in "fiub":
        return tf.constant(value)
    return tf.fill(value.shape, tf.constant(value.flat[0]))
