"""Add what training needs in addition to the step: variable collections, an init op, a saver."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pesto_cli.errors import BadInputError, about
from pesto_cli.graphdef.fetches import FEEDS, INIT_OP, TRAIN_OP, node_name
from pesto_cli.graphdef.guards import guard_reads
from pesto_cli.graphdef.nodes import needed_nodes
from pesto_cli.graphdef.signature import node_type
from pesto_cli.graphdef.tensorflow import tensorflow

VARIABLES = "variables"
TRAINABLE_VARIABLES = "trainable_variables"
MAIN_OP = "saved_model_main_op"
"""Collection of the op with which a SavedModel initialises its tables."""


class NotImportedError(BadInputError):
    """A graph that TensorFlow cannot import; `reason` is the message of TensorFlow."""

    reason: str = ""


def complete(meta: Any, fetches: Sequence[str], feeds: Sequence[str], what: str) -> Any:
    """Return the graph as a MetaGraphDef that can be imported, initialised and trained.

    It has the fetches in collection `train_op`, the placeholders in `feeds`, the initialising op
    in `init_op` (the existing one, else a new one for all variables and tables), and the variables
    in TensorFlow's own collections. It has a saver if there are variables. An initial value reads
    another variable only if that is initialised (see `guards`). `what` names the graph in errors.
    Raises NotImportedError when TensorFlow cannot import the graph.
    """
    tf1 = tensorflow().compat.v1
    if VARIABLES not in meta.collection_def:
        with about(what):
            register_variables(meta)
    with tf1.Graph().as_default() as graph:
        saver = imported(meta, what)
        step = needed_nodes(meta.graph_def, map(node_name, fetches))
        guard_reads(graph, {node.name for node in step})
        return completed(graph, saver, fetches, feeds)


def completed(graph: Any, saver: Any, fetches: Sequence[str], feeds: Sequence[str]) -> Any:
    """Return the default graph as a MetaGraphDef, completed as in `complete`; saver may be None."""
    _set_collection(graph, TRAIN_OP, fetches)
    _set_collection(graph, FEEDS, feeds)
    if not graph.get_collection(INIT_OP):
        _add_init_op(graph)
    saver_def = saver.as_saver_def() if saver is not None else None
    return tensorflow().compat.v1.train.export_meta_graph(graph=graph, saver_def=saver_def)


def register_variables(meta: Any) -> None:
    """Add a graph's variables to the collections that a plain GraphDef lacks, in place.

    A variable is added only if the graph has its initialiser and its read, under TensorFlow's usual
    names. All floating-point variables count as trainable: a GraphDef does not say which ones an
    optimiser trains.
    """
    nodes = {node.name: node for node in meta.graph_def.node}
    for definition in _variable_definitions(nodes):
        meta.collection_def[VARIABLES].bytes_list.value.append(definition.SerializeToString())
        if definition.trainable:
            trainable = meta.collection_def[TRAINABLE_VARIABLES].bytes_list.value
            trainable.append(definition.SerializeToString())


def _variable_definitions(nodes: Mapping[str, Any]) -> Iterator[Any]:
    """Yield a VariableDef for each variable; `nodes` are the NodeDefs of a graph by name."""
    from tensorflow.core.framework.variable_pb2 import VariableDef

    for name, node in nodes.items():
        is_resource = node.op == "VarHandleOp"
        if not is_resource and node.op not in ("Variable", "VariableV2"):
            continue
        assign = nodes.get(f"{name}/Assign")
        read = nodes.get(f"{name}/Read/ReadVariableOp" if is_resource else f"{name}/read")
        if assign is not None and read is not None:
            value = assign.input[1]
            yield VariableDef(
                variable_name=f"{name}:0",
                initializer_name=assign.name,
                initial_value_name=value if ":" in value else f"{value}:0",
                snapshot_name=f"{read.name}:0",
                is_resource=is_resource,
                trainable=node_type(node, "dtype").is_floating,
            )


def imported(meta: Any, what: str) -> Any:
    """Import `meta` into the default graph and return its saver: its own, or a new one.

    Raises NotImportedError when TensorFlow cannot import the graph.
    """
    tf = tensorflow()
    try:
        return tf.compat.v1.train.import_meta_graph(meta)
    except Exception as error:  # TensorFlow raises many types of errors for damaged graphs.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        refusal = NotImportedError(
            f"{what}: TensorFlow {tf.__version__} cannot import the graph: {reason}"
            " Export it with the TensorFlow version that wrote it, or fix the graph."
        )
        refusal.reason = reason
        raise refusal from error


def _set_collection(graph: Any, key: str, names: Sequence[str]) -> None:
    graph.clear_collection(key)
    for name in names:
        graph.add_to_collection(key, graph.as_graph_element(name))


def _add_init_op(graph: Any) -> None:
    tf1 = tensorflow().compat.v1
    parts = [
        tf1.variables_initializer([*tf1.global_variables(), *tf1.local_variables()]),
        tf1.tables_initializer(),
        *graph.get_collection(MAIN_OP),
        *graph.get_collection("legacy_init_op"),
    ]
    graph.add_to_collection(INIT_OP, tf1.group(*parts, name=INIT_OP))
