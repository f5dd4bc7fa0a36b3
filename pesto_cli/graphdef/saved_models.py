"""Read one signature of a SavedModel as a MetaGraphDef with inlined functions."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.files import check_input_size
from pesto_cli.graphdef.completion import MAIN_OP, imported
from pesto_cli.graphdef.containers import read_saved_model
from pesto_cli.graphdef.fetches import (
    INIT_OP,
    TRAIN_OP,
    fetch_names,
    node_name,
    step_protos,
    suggestion,
)
from pesto_cli.graphdef.grappler import inline_functions
from pesto_cli.graphdef.initial_values import add_initialisers, initial_values
from pesto_cli.graphdef.nodes import output_number
from pesto_cli.graphdef.self_contained import require_no_python
from pesto_cli.graphdef.signature import constant_value
from pesto_cli.graphdef.structure import (
    ancestors,
    check_contents,
    check_structure,
    drop_missing_colocation,
    unused_name,
)
from pesto_cli.graphdef.tensorflow import tensorflow

INTERNAL_SIGNATURES = ("__saved_model_init_op", "__saved_model_train_op")
RESTORE = "restore"
"""Collection of the restoring op, which keeps it in the graph while functions are inlined."""


def signature_graph(path: Path, signature: str | None) -> Any:
    """Return the graph of one signature; its fetches are an op `train_op` and the outputs.

    The graph of a TensorFlow 1 SavedModel is flat and has its own variable initialisers. For a
    TensorFlow 2 SavedModel, the signature is inlined, and the variables are initialised with the
    saved values. If `signature` is None and the only graph names fetches, it is returned unchanged.

    Raises BadInputError for an unknown signature, for a SavedModel without exactly one signature if
    none is named, and for a signature that calls Python.
    """
    saved_model = read_saved_model(path)
    chosen = _chosen(path, saved_model, signature)
    if chosen is None:
        return saved_model.meta_graphs[0]
    meta, definition = chosen
    check_contents(meta, str(path))
    fetched = _with_fetches(meta, definition)
    check_structure(fetched.graph_def, str(path))
    step = step_protos(fetched)
    require_no_python(step, fetched.graph_def.library, str(path))
    if not _is_functional(meta):
        return fetched
    _keep_restoring(fetched)
    return _with_saved_values(inline_functions(fetched, str(path)), path)


def _chosen(path: Path, saved_model: Any, signature: str | None) -> tuple[Any, Any] | None:
    """Return the chosen signature as (MetaGraphDef, SignatureDef).

    None if no signature is requested and the only graph names its fetches.
    """
    found = {
        name: (meta, definition)
        for meta in saved_model.meta_graphs
        for name, definition in meta.signature_def.items()
        if name not in INTERNAL_SIGNATURES and definition.outputs
    }
    if signature is not None:
        if signature not in found:
            raise BadInputError(
                f"{path}: no signature {signature!r}.{suggestion(signature, list(found))}"
            )
        return found[signature]
    if len(saved_model.meta_graphs) == 1 and fetch_names(saved_model.meta_graphs[0]):
        return None
    if len(found) != 1:
        names = ", ".join(sorted(found)) or "none"
        raise BadInputError(
            f"{path}: a SavedModel with {len(found)} signatures ({names}), where one was expected."
            " Choose one: --signature NAME"
        )
    return next(iter(found.values()))


def _is_functional(meta: Any) -> bool:
    """Return whether TensorFlow 2 saved the graph: with objects, but no collection of variables."""
    return bool(meta.object_graph_def.nodes) and "variables" not in meta.collection_def


def _with_fetches(meta: Any, definition: Any) -> Any:
    """Return a copy whose fetches are a new op that runs the whole signature, and its outputs."""
    copy = type(meta)()
    copy.CopyFrom(meta)
    outputs = sorted({output.name for output in definition.outputs.values()})
    name = unused_name(copy.graph_def, TRAIN_OP)
    inputs = sorted({f"^{node_name(output)}" for output in outputs})
    copy.graph_def.node.add(name=name, op="NoOp", input=inputs)
    copy.collection_def[TRAIN_OP].node_list.value[:] = [name, *outputs]
    return copy


def _keep_restoring(meta: Any) -> None:
    """Replace the saver, in place, by a NoOp that keeps the restoring ops in the inlined graph."""
    restore = meta.saver_def.restore_op_name
    meta.ClearField("saver_def")
    if restore:
        name = unused_name(meta.graph_def, RESTORE)
        meta.graph_def.node.add(name=name, op="NoOp", input=[f"^{node_name(restore)}"])
        meta.collection_def[RESTORE].node_list.value.append(name)


def _with_saved_values(meta: Any, path: Path) -> Any:
    """Return the graph of the signature, with variables initialised by their saved values."""
    tf1 = tensorflow().compat.v1
    keys = _checkpoint_keys(meta.graph_def)
    signature = _pruned(meta)
    variables = [node.name for node in signature.graph_def.node if node.op == "VarHandleOp"]
    missing = [name for name in variables if name not in keys]
    if missing:
        raise BadInputError(
            f"{path}: the variable {missing[0]!r} has no saved value. Save the model again with"
            " tf.saved_model.save."
        )
    values = _saved_values(path / "variables" / "variables", {n: keys[n] for n in variables})
    with tf1.Graph().as_default() as graph:
        imported(signature, str(path))
        add_initialisers(graph, initial_values(values))
        return tf1.train.export_meta_graph(graph=graph)


def _saved_values(prefix: Path, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of variables from a checkpoint. keys: variable name -> checkpoint key."""
    tf = tensorflow()
    try:
        checkpoint = tf.train.load_checkpoint(str(prefix))
        check_input_size(prefix, _num_bytes(checkpoint, keys.values()), "has variables of")
        return {name: checkpoint.get_tensor(key) for name, key in keys.items()}
    except (tf.errors.OpError, LookupError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInputError(
            f"{prefix}: the saved values cannot be read ({reason}); the variables of a SavedModel"
            " were expected. Copy the whole directory again, or save the model again."
        ) from error


def _num_bytes(checkpoint: Any, keys: Iterable[str]) -> int:
    shapes, types = checkpoint.get_variable_to_shape_map(), checkpoint.get_variable_to_dtype_map()
    return sum(types[key].size * math.prod(shapes[key]) for key in keys)


def _pruned(meta: Any) -> Any:
    """Return the part of the graph that the fetches and the initialisation of tables need."""
    kept = type(meta)()
    kept.CopyFrom(meta)
    kept.ClearField("graph_def")
    for key in list(kept.collection_def):
        if key not in (TRAIN_OP, MAIN_OP, INIT_OP):
            del kept.collection_def[key]
    roots = [node_name(n) for c in kept.collection_def.values() for n in c.node_list.value]
    needed = ancestors(meta.graph_def, roots)
    kept.graph_def.versions.CopyFrom(meta.graph_def.versions)
    kept.graph_def.library.CopyFrom(meta.graph_def.library)
    kept.graph_def.node.extend(node for node in meta.graph_def.node if node.name in needed)
    for node in kept.graph_def.node:
        drop_missing_colocation(node, needed)
    return kept


def _checkpoint_keys(graph_def: Any) -> dict[str, str]:
    """Return the checkpoint key of each variable, by the name of its handle's node.

    The keys follow from the restoring ops: RestoreV2 -> Identity -> AssignVariableOp <-
    VarHandleOp.
    """
    nodes = {node.name: node for node in graph_def.node}
    keys = {}
    for node in graph_def.node:
        if node.op == "AssignVariableOp":
            handle, value = (_through_identities(nodes, name) for name in node.input[:2])
            restore = nodes[node_name(value)]
            if restore.op == "RestoreV2":
                index = output_number(value.partition(":")[2] or "0") or 0
                keys[handle] = _restored_key(nodes, restore, index)
    return keys


def _restored_key(nodes: Mapping[str, Any], restore: Any, index: int) -> str:
    names = nodes[node_name(_through_identities(nodes, restore.input[1]))]
    key: bytes = constant_value(names).flatten()[index]
    return key.decode()


def _through_identities(nodes: Mapping[str, Any], name: str) -> str:
    while nodes[node_name(name)].op == "Identity":
        name = nodes[node_name(name)].input[0]
    return name
