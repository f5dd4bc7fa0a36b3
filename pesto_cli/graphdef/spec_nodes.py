"""Write op specs as NodeDefs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.attributes import attr_value
from pesto_cli.graphdef.tensorflow import tensorflow


def node_def(name: str, spec: OpSpec, inputs: Sequence[str], controls: Sequence[str] = ()) -> Any:
    """Return a NodeDef with the type and attributes of a spec.

    inputs: names of tensors, such as `a` or `a:1`, by slot. controls: names of nodes. Attributes
        that are functions, and the value of a Const, are not written: a spec lacks them.

    Raises:
        BadInputError: TensorFlow does not have the op type, or an attribute has another type.
    """
    tf1 = tensorflow().compat.v1
    from tensorflow.python.framework import op_def_registry

    op_def = op_def_registry.get(spec.type)
    if op_def is None:
        raise BadInputError(
            f"op {name!r} has the type {spec.type}, which this TensorFlow does not have; a "
            "registered type was expected: load the library that registers it."
        )
    node = tf1.NodeDef(name=name, op=spec.type)
    node.input.extend([*inputs, *(f"^{control}" for control in controls)])
    kinds = {attr.name: attr.type for attr in op_def.attr}
    for attribute, value in spec.attributes:
        if attribute in kinds:
            try:
                node.attr[attribute].CopyFrom(attr_value(kinds[attribute], value))
            except ValueError as error:
                raise BadInputError(
                    f"op {name!r} ({spec.type}) cannot have the attribute {attribute} = {value!r}: "
                    f"{error}; a {kinds[attribute]} was expected: profile the graph again."
                ) from None
    return node


def constant_def(name: str, operand: Operand) -> Any:
    """Return a Const with the value of an operand.

    Raises:
        ValueError: the operand has no value, or one that does not have its shape and type.
    """
    tf = tensorflow()
    if operand.value is None or operand.dtype is None:
        raise ValueError(f"constant {name!r} has no value or no type")
    dtype = tf.dtypes.as_dtype(operand.dtype)
    value = np.array(operand.value, dtype.as_numpy_dtype).reshape(operand.sizes)
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))
    return node
