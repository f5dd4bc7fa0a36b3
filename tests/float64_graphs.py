"""Turns a graph into one that computes in float64, or whose random numbers are repeatable."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pesto_cli.graphdef.tensorflow import tensorflow


def in_float64(meta: Any) -> Any:
    """Return a copy of a MetaGraphDef in which float64 stands for float32."""
    copy = type(meta)()
    copy.CopyFrom(meta)
    for node in _nodes(copy.graph_def):
        for attribute in node.attr.values():
            _widen(attribute)
    narrow, wide = _types()
    for function in copy.graph_def.library.function:
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            argument.type = wide if argument.type == narrow else argument.type
    return copy


def seeded(meta: Any) -> Any:
    """Return a copy of a MetaGraphDef whose random ops have seeds, so that runs are equal."""
    copy = type(meta)()
    copy.CopyFrom(meta)
    for index, node in enumerate(_nodes(copy.graph_def)):
        if "seed2" in node.attr and not (node.attr["seed"].i or node.attr["seed2"].i):
            node.attr["seed"].i, node.attr["seed2"].i = 1, index + 1
    return copy


def _nodes(graph_def: Any) -> Iterator[Any]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def _widen(attribute: Any) -> None:
    tf, (narrow, wide) = tensorflow(), _types()
    kind = attribute.WhichOneof("value")
    if kind == "type" and attribute.type == narrow:
        attribute.type = wide
    elif kind == "list":
        types = attribute.list.type
        types[:] = [wide if each == narrow else each for each in types]
    elif kind == "tensor" and attribute.tensor.dtype == narrow:
        value = tf.make_ndarray(attribute.tensor).astype(np.float64)
        attribute.tensor.CopyFrom(tf.make_tensor_proto(value, shape=value.shape))


def _types() -> tuple[int, int]:
    """Return the enum values of float32 and float64."""
    tf = tensorflow()
    return tf.float32.as_datatype_enum, tf.float64.as_datatype_enum
