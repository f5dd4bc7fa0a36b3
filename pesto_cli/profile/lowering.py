"""Functions and functional control flow unfolded, so that their ops can be costed one by one."""

from collections.abc import Collection
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.grappler import CALLS, FUNCTIONAL_CONTROL_FLOW
from pesto_cli.graphdef.tensorflow import tensorflow

# What inlining adds at the borders of a function: `Func/<caller>/input/_1`.
PLUMBING = "Func/"


def lowered(meta_graph: Any) -> Any:
    """Return the MetaGraphDef with what its functions do in their place, loops as v1 frames.

    A graph without functions comes back as it is. What a call `f` turns into has names below `f/`.

    Raises:
        BadInputError: TensorFlow cannot rewrite the graph.
    """
    if not call_names(meta_graph.graph_def):
        return meta_graph
    tf1 = tensorflow().compat.v1
    from tensorflow.python.grappler import tf_optimizer

    request = tf1.MetaGraphDef()
    request.CopyFrom(meta_graph)
    bodies = (node for function in request.graph_def.library.function for node in function.node_def)
    for node in (*request.graph_def.node, *bodies):
        if node.op in FUNCTIONAL_CONTROL_FLOW:
            node.attr["_lower_using_switch_merge"].b = True
    config = tf1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.min_graph_nodes = -1
    rewrites.meta_optimizer_iterations = rewrites.ONE
    rewrites.optimizers.append("function")
    rewrites.function_optimization = rewrites.AGGRESSIVE
    try:
        graph_def = tf_optimizer.OptimizeGraph(config, request)
    except Exception as error:
        raise BadInputError(f"TensorFlow cannot inline the graph's functions: {error}") from error
    request.graph_def.CopyFrom(graph_def)
    return request


def call_names(graph_def: Any) -> frozenset[str]:
    """Return the nodes that call functions, and that lowering replaces."""
    functions = {function.signature.name for function in graph_def.library.function}
    types = functions.union(CALLS, FUNCTIONAL_CONTROL_FLOW)
    return frozenset(node.name for node in graph_def.node if node.op in types)


def caller(name: str, calls: Collection[str]) -> str:
    """Return the outermost of `calls` that a node of the lowered graph stems from; else itself."""
    parts = name.removeprefix(PLUMBING).split("/")
    prefixes = ("/".join(parts[:length]) for length in range(1, len(parts)))
    return next((prefix for prefix in prefixes if prefix in calls), name)
