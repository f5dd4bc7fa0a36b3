"""Run TensorFlow's graph optimiser (grappler) at export: function inlining or default passes."""

import math
from collections.abc import Iterator
from typing import Any

from pesto_cli.errors import BadInputError, about
from pesto_cli.graphdef.conditionals import CALLS, choose_lowering, forbid_lowering
from pesto_cli.graphdef.fetches import FED_TYPES, TRAIN_OP, node_name
from pesto_cli.graphdef.signature import node_type
from pesto_cli.graphdef.structure import variable_defs
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.graphdef.values_of_calls import take_values

MAX_FEED_BYTES = 2**30
CONTEXT_COLLECTIONS = ("while_context", "cond_context")
"""Collections needed only to build more gradients. They name nodes that a rewritten graph lacks."""


def inline_functions(meta: Any, what: str, *, whole_conditionals: bool = False) -> Any:
    """Return the MetaGraphDef with function calls replaced by the bodies of the functions.

    Functional while loops and conditionals stay one op each, with their bodies in the function
    library. The exception are conditionals that force several variables onto one device: they
    become Switches and Merges (see `conditionals`), unless `whole_conditionals`.

    Calls that TensorFlow does not inline stay, too. They take the values of the variables that they
    read (see `values_of_calls`), unless `whole_conditionals`.
    """
    marked = _copied(meta)
    if whole_conditionals:
        forbid_lowering(marked.graph_def)
    is_lowered = not whole_conditionals and choose_lowering(marked.graph_def, set(_names(meta)))
    functions = {function.signature.name for function in meta.graph_def.library.function}
    is_calling = any(node.op in CALLS or node.op in functions for node in meta.graph_def.node)
    if not (is_calling or is_lowered):
        return marked
    config = _config()
    rewrites = config.graph_options.rewrite_options
    rewrites.optimizers.append("function")
    rewrites.function_optimization = rewrites.AGGRESSIVE
    rewrites.meta_optimizer_iterations = rewrites.ONE
    with about(what):
        placeholders = _open_shapes(marked.graph_def)
    rewritten = _rewritten(marked, config, what)
    for node in rewritten.graph_def.node:
        if node.name in placeholders:
            node.attr["shape"].CopyFrom(placeholders[node.name])
    if not whole_conditionals:
        take_values(rewritten.graph_def)
    return rewritten


def _open_shapes(graph_def: Any) -> dict[str, Any]:
    """Make the shapes of placeholders unknown, in place; return the old ones by node name.

    The optimiser allocates a tensor of any size for a placeholder with a shape, and none for one
    without. It does not need the shapes to inline functions.
    """
    shapes = {}
    for node in graph_def.node:
        if node.op in FED_TYPES:
            node_type(node, "dtype")  # Raises an error; the optimiser would end the process.
            node.attr.pop("_output_shapes", None)
            if "shape" in node.attr:
                shapes[node.name] = type(node.attr["shape"])()
                shapes[node.name].CopyFrom(node.attr["shape"])
            node.attr["shape"].shape.Clear()
            node.attr["shape"].shape.unknown_rank = True
    return shapes


def optimize(meta: Any, what: str) -> Any:
    """Return the MetaGraphDef after grappler's default passes; the result is machine-independent.

    Passes that adapt the graph to the devices of this machine (layout, fused CPU kernels, pinning
    to the host) are off, because the devices are chosen later.
    """
    _check_feeds(meta.graph_def, what)
    config = _config()
    rewrites = config.graph_options.rewrite_options
    rewrites.layout_optimizer = rewrites.OFF
    rewrites.remapping = rewrites.OFF
    rewrites.implementation_selector = rewrites.OFF
    rewrites.pin_to_host_optimization = rewrites.OFF
    rewrites.scoped_allocator_optimization = rewrites.OFF
    rewrites.memory_optimization = rewrites.NO_MEM_OPT
    return _rewritten(meta, config, what)


def _check_feeds(graph_def: Any, what: str) -> None:
    """Raise BadInputError if a placeholder has more than MAX_FEED_BYTES: grappler allocates it."""
    for node in graph_def.node:
        if node.op in FED_TYPES:
            with about(what):
                element_bytes = node_type(node, "dtype").size
            sizes = [max(dim.size, 1) for dim in node.attr["shape"].shape.dim]
            num_bytes = element_bytes * math.prod(sizes)
            if num_bytes > MAX_FEED_BYTES:
                raise BadInputError(
                    f"{what}: --optimize: input {node.name!r} has {num_bytes:,} bytes, which the"
                    f" optimiser allocates; at most {MAX_FEED_BYTES:,} were expected. Leave"
                    " --optimize out, or give a smaller shape (--feed)."
                )


def _config() -> Any:
    """Return a ConfigProto to rewrite graphs of any size; by default, grappler skips small ones."""
    config = tensorflow().compat.v1.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    return config


def _rewritten(meta: Any, config: Any, what: str) -> Any:
    """Return a copy of `meta` with the graph as rewritten by grappler."""
    from tensorflow.python.grappler import tf_optimizer

    kept = sorted(_kept_nodes(meta))
    request = _copied(meta)
    request.ClearField("signature_def")  # The optimiser allocates tensors for its inputs.
    fetches = request.collection_def[TRAIN_OP].node_list.value
    fetches.extend(name for name in kept if name not in {node_name(fetch) for fetch in fetches})
    try:
        graph_def = tf_optimizer.OptimizeGraph(config, request)
    except Exception as error:
        raise BadInputError(f"{what}: TensorFlow cannot rewrite the graph: {error}") from error
    lost = set(kept) - {node.name for node in graph_def.node}
    if lost:
        raise BadInputError(
            f"{what}: TensorFlow's graph optimiser removed the node {min(lost)!r}, which training"
            " needs. Export without --optimize, or report the graph."
        )
    result = _copied(meta)
    result.graph_def.CopyFrom(graph_def)
    for key in CONTEXT_COLLECTIONS:
        result.collection_def.pop(key, None)
    return result


def _kept_nodes(meta: Any) -> set[str]:
    """Return the names of the nodes in the graph to which the MetaGraphDef refers by name."""
    return {node_name(name) for name in _names(meta)} & {node.name for node in meta.graph_def.node}


def _names(meta: Any) -> Iterator[str]:
    """Yield the names of the ops and tensors to which the MetaGraphDef refers."""
    for collection in meta.collection_def.values():
        yield from collection.node_list.value
    for variable in variable_defs(meta):
        yield variable.variable_name
        yield variable.initializer_name
        yield variable.snapshot_name
        yield variable.initial_value_name
    yield meta.saver_def.filename_tensor_name
    yield meta.saver_def.save_tensor_name
    yield meta.saver_def.restore_op_name


def _copied(meta: Any) -> Any:
    copy = type(meta)()
    copy.CopyFrom(meta)
    return copy
