"""Compute the outputs of one op with TensorFlow's kernel on the CPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pesto_cli.graphdef.signature import OpDefs, values
from pesto_cli.graphdef.tensorflow import tensorflow

Array = np.ndarray[Any, Any]


def computed(
    node: Any, op_defs: OpDefs, inputs: Sequence[Array], num_outputs: int
) -> tuple[Array, ...]:
    """Return the outputs of a NodeDef for given inputs; empty if its kernel fails.

    A kernel fails for some values, as in a division by zero; it then fails in the step, too.
    """
    tf = tensorflow()
    from tensorflow.python.eager import context, execute

    attributes: list[Any] = []
    for attribute in op_defs.of(node).attr:
        found = values(op_defs.attribute(node, attribute.name)) or ()
        if not found and "list" not in attribute.type:
            return ()
        attributes += [attribute.name, list(found) if "list" in attribute.type else found[0]]
    with context.eager_mode(), tf.device("/CPU:0"):
        try:
            results = execute.execute(
                node.op.encode(),
                num_outputs,
                [tf.constant(value) for value in inputs],
                tuple(attributes),
                context.context(),
            )
        except (tf.errors.OpError, TypeError, ValueError):  # the last two: unusual attributes
            return ()
        # numpy cannot convert a tensor of bfloat16 by itself.
        return tuple(np.asarray(result.numpy()) for result in results)
