"""Calls of functions as cases of sharding rules: their specs, and how TensorFlow runs them."""

from collections.abc import Callable
from typing import Any

from sharding_ops import Case, Input, Known

from pesto_cli.apply.part_functions import add_functions_of_parts, name_for_parts
from pesto_cli.data.specs import OpSpec
from pesto_cli.graphdef.fetches import TRAIN_OP
from pesto_cli.graphdef.op_specs import op_specs
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow

tf = tensorflow()


def called(op_type: str, function: Callable[..., Any], *arguments: Input) -> Case:
    """Return the call of a Python function that TensorFlow traces for these arguments.

    The attribute `config` of the spec has the name of the function as parts call it.
    """
    return Case(call_spec(graph_of_call(op_type, function, *arguments)), arguments)


def graph_of_call(op_type: str, function: Callable[..., Any], *arguments: Input) -> Any:
    """Return a MetaGraphDef whose only call, `call`, calls a function; register this function."""
    from tensorflow.python.eager import context

    traced = tf.function(function, autograph=False)
    with tf.Graph().as_default() as graph:
        tensors = [
            tf.constant(each.array)
            if isinstance(each, Known)
            else tf.compat.v1.placeholder(each.dtype, each.shape)
            for each in arguments
        ]
        traced.get_concrete_function(*tensors)(*tensors)
        meta = tf.compat.v1.train.export_meta_graph(graph=graph)
    (call,) = (node for node in meta.graph_def.node if "f" in node.attr)
    call.op, call.name = op_type, "call"
    name = call.attr["f"].func.name
    call.attr["config"].s = name_for_parts(name).encode()
    call.attr["config_proto"].s = b""  # A spec has it as text.
    library = meta.graph_def.library
    add_functions_of_parts(library, [name])
    for each in library.function:
        if not context.context().has_function(each.signature.name):
            context.context().add_function_def(each)
    number = len(call.attr["Tout"].list.type)
    meta.collection_def[TRAIN_OP].node_list.value.extend(f"call:{at}" for at in range(number))
    return meta


def call_spec(meta: Any) -> OpSpec:
    """Return the spec of the op `call`."""
    step = read_step(meta)
    specs, spec_of = op_specs(step)
    return specs[spec_of[step.graph.index_of["call"]]]
