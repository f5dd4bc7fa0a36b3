"""Convert a graph that a program is about to run to a MetaGraphDef of its training step."""

from collections.abc import Mapping, Sequence
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.fetches import (
    FED_TYPES,
    TRAIN_OP,
    Shape,
    forget_inferred_shapes,
    set_feed_shapes,
)
from pesto_cli.graphdef.tensorflow import tensorflow


def live_step(
    graph: Any,
    fetches: Sequence[str],
    feeds: Mapping[str, Shape | None],
    what: str,
    *,
    data_shapes: Mapping[str, Sequence[Shape]] | None = None,
) -> Any:
    """Return a tf.Graph as a MetaGraphDef.

    fetches: names of operations or tensors, stored in collection `train_op`.
    feeds: node name -> shape of its feed; None to leave the shape unchanged. A node that is not a
        placeholder becomes one.
    data_shapes: name of an iterator's `GetNext` -> shapes of its outputs.
    what: names the program in errors.

    Raises BadInputError for a fed node with several outputs, and for a wrong shape.
    """
    tf1 = tensorflow().compat.v1
    with graph.as_default():
        meta = tf1.train.export_meta_graph(graph=graph)
    nodes = {node.name: node for node in meta.graph_def.node}
    for name in feeds:
        if nodes[name].op not in FED_TYPES:
            _make_placeholder(nodes[name], graph.get_operation_by_name(name), what)
    set_feed_shapes(meta, {name: shape for name, shape in feeds.items() if shape is not None}, what)
    for name, shapes in (data_shapes or {}).items():
        _set_output_shapes(nodes[name], shapes)
    forget_inferred_shapes(meta.graph_def)
    meta.collection_def[TRAIN_OP].Clear()
    meta.collection_def[TRAIN_OP].node_list.value[:] = fetches
    return meta


def _make_placeholder(node: Any, operation: Any, what: str) -> None:
    """Replace a node that is fed by a placeholder without inputs, in place."""
    if len(operation.outputs) != 1:
        raise BadInputError(
            f"{what}: {node.name!r}, a {node.op} with {len(operation.outputs)} outputs, is fed,"
            " where an operation with one output was expected. Feed a tf.identity of the output."
        )
    node.op = "Placeholder"
    node.ClearField("input")
    node.attr.clear()
    node.attr["dtype"].type = operation.outputs[0].dtype.base_dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(operation.outputs[0].shape.as_proto())


def _set_output_shapes(node: Any, shapes: Sequence[Shape]) -> None:
    node.attr["output_shapes"].list.ClearField("shape")
    for shape in shapes:
        proto = node.attr["output_shapes"].list.shape.add()
        for size in shape:
            proto.dim.add(size=size)
