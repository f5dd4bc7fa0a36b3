"""Ops with their inputs: their specs, and how TensorFlow computes them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sharding_gpu_kernels import computed_by_others

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.graphdef.attributes import UNKNOWN_RANK, plain_attributes, plain_value
from pesto_cli.graphdef.constant_values import plain
from pesto_cli.graphdef.tensorflow import tensorflow

tf = tensorflow()
Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Known:
    """A small constant: an input whose value the spec states."""

    array: Array


@dataclass(frozen=True, eq=False)
class Variable:
    """A resource handle: an input that refers to a variable with an initial value."""

    array: Array


Input = Array | Known | Variable


@dataclass(frozen=True, eq=False)
class Case:
    """An op and its inputs, by slot.

    value: of a Const. num_defined: the number of outputs that the op defines; it leaves the others
    as they are in memory. None: all of them.
    """

    spec: OpSpec
    inputs: tuple[Input, ...]
    value: Array | None = None
    num_defined: int | None = None

    def __repr__(self) -> str:
        return f"Case({self.spec})"

    def without_values(self) -> Self:
        """Return the same op with inputs whose values the spec does not state."""
        inputs = tuple(replace(operand, value=None) for operand in self.spec.inputs)
        arrays = [each.array if isinstance(each, Known) else each for each in self.inputs]
        return replace(self, spec=replace(self.spec, inputs=inputs), inputs=tuple(arrays))


def case(op_type: str, *arguments: Input | Sequence[Input], **attributes: Any) -> Case:
    """Return an op with its inputs.

    arguments: in the order of the op's definition; a list of inputs where it takes a list.
    attributes: those that neither follow from the inputs nor have their default value.
    """
    inputs = tuple(each for argument in arguments for each in _listed(argument))
    value = attributes.get("value") if op_type == "Const" else None
    return Case(spec_of(op_type, *arguments, **attributes), inputs, value)


def known(value: Any, dtype: str = "int32") -> Known:
    """Return a small constant."""
    return Known(np.array(value, dtype))


def spec_of(op_type: str, *arguments: Input | Sequence[Input], **attributes: Any) -> OpSpec:
    """Return the spec of an op as TensorFlow defines it; arguments as for `case`."""
    definition = _definition(op_type)
    with tf.Graph().as_default():
        op = _created(op_type, arguments, attributes)
        inputs = [each for argument in arguments for each in _listed(argument)]
        return OpSpec(
            op_type,
            plain_attributes(op.node_def, definition),
            tuple(_operand(*pair) for pair in zip(op.inputs, inputs, strict=True)),
            tuple(_operand(tensor) for tensor in op.outputs),
            definition.is_stateful,
        )


def _created(op_type: str, arguments: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Return a new op of the default graph."""
    from tensorflow.python.framework import op_def_library

    if op_type == "Const":
        return tf.constant(attributes["value"]).op
    definition = _definition(op_type)
    tensors = {
        stated.name: [_placed(each) for each in given] if _is_list(given) else _placed(given)
        for stated, given in zip(definition.input_arg, arguments, strict=True)
    }
    op_def_library.apply_op(op_type, name="it", **tensors, **(_defaults(definition) | attributes))
    return tf.compat.v1.get_default_graph().get_operation_by_name("it")


def computed(spec: OpSpec, inputs: Sequence[Input]) -> list[Array]:
    """Return the outputs of an op that TensorFlow runs with the attributes of a spec."""
    arrays = [each.array if isinstance(each, Known) else each for each in inputs]
    if not any(isinstance(each, Variable) for each in arrays):
        outputs = computed_by_others(spec, arrays, computed)
        if outputs is not None:
            return outputs
    return _computed_by_kernel(spec, inputs)


def _computed_by_kernel(spec: OpSpec, inputs: Sequence[Input]) -> list[Array]:
    return updated(spec, inputs)[0]


def updated(spec: OpSpec, inputs: Sequence[Input]) -> tuple[list[Array], list[Array]]:
    """Return the outputs of an op, and the values of its variables after it ran, by slot."""
    from tensorflow.python.eager import context, execute

    definition = {attribute.name: attribute.type for attribute in _definition(spec.type).attr}
    attributes: list[Any] = []
    for name, value in spec.attributes:
        attributes += [name, _eager(value, definition[name])]
    if "f" in definition:  # See `sharding_calls`.
        attributes += ["f", spec.attribute["config"]]
    variables = [tf.Variable(each.array) for each in inputs if isinstance(each, Variable)]
    handles = iter(variables)
    tensors = [
        next(handles).handle if isinstance(each, Variable) else tf.constant(_array(each))
        for each in inputs
    ]
    outputs = execute.execute(
        spec.type.encode(), len(spec.outputs), tensors, tuple(attributes), context.context()
    )
    return [output.numpy() for output in outputs], [each.numpy() for each in variables]


def attribute_names(op_type: str) -> set[str]:
    """Return the attributes that the spec of an op states: all but functions and values."""
    return {
        attribute.name
        for attribute in _definition(op_type).attr
        if attribute.type not in ("func", "list(func)", "tensor")
    }


def _definition(op_type: str) -> Any:
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op_type)


def _defaults(definition: Any) -> dict[str, Any]:
    """Return the default values of the attributes that do not follow from inputs."""
    inferred = {
        name
        for argument in definition.input_arg
        for name in (argument.type_attr, argument.number_attr, argument.type_list_attr)
    }
    return {
        attribute.name: plain_value(attribute.default_value)
        for attribute in definition.attr
        if attribute.name not in inferred and attribute.HasField("default_value")
    }


def _eager(value: Any, kind: str) -> Any:
    """Return an attribute as TensorFlow's eager interface takes it."""
    if kind.startswith("list("):
        return [_eager(each, kind[5:-1]) for each in value]
    if kind == "type":
        return tf.as_dtype(value).as_datatype_enum
    return None if value == UNKNOWN_RANK else value


def _placed(given: Input) -> Any:
    """Return an input as a tensor of the default graph."""
    if isinstance(given, Variable):
        shape, dtype = given.array.shape, given.array.dtype
        return tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape)
    if isinstance(given, Known):
        return tf.constant(given.array)
    return tf.compat.v1.placeholder(tf.as_dtype(given.dtype), given.shape)


def _operand(tensor: Any, given: Input | None = None) -> Operand:
    shape = None if tensor.shape.rank is None else tuple(tensor.shape)
    if isinstance(given, Variable):
        shape = given.array.shape
    value = plain(given.array) if isinstance(given, Known) else None
    return Operand(shape, tensor.dtype.name, value)


def _listed(argument: Input | Sequence[Input]) -> Sequence[Input]:
    return argument if _is_list(argument) else (argument,)


def _is_list(argument: Input | Sequence[Input]) -> bool:
    return isinstance(argument, list | tuple)


def _array(given: Array | Known) -> Array:
    return given.array if isinstance(given, Known) else given
