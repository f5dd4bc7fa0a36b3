"""Inlining: a step without function calls and functional loops, so that each node gets a cost."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.conditionals import CALLS, FUNCTIONAL_CONTROL_FLOW, LOWERED
from pesto_cli.graphdef.devices import sites
from pesto_cli.graphdef.nodes import Node
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.graphdef.wiring import wiring
from pesto_cli.graphdef.xla import MUST_COMPILE
from pesto_cli.profile.analytic.loops import Loops

# Prefix of the nodes that inlining adds for arguments and results: `Func/<caller>/input/_1`.
PLUMBING = "Func/"
# Attributes of functions, and of calls, that TensorFlow does not inline.
STAYS_ONE_OP = (MUST_COMPILE, "_noinline")


@dataclass(frozen=True)
class Unfolded:
    """The nodes of a step, where each call is replaced by the nodes of the called function.

    op_of: `[num_nodes]`, the op of the step that a node belongs to; None for a small constant,
        which is not an op of the step, and for what stands for an argument or a result of a call.
    on_host: `[num_nodes]`, whether all outputs of a node are in host memory even if it runs on a
        GPU, as in arithmetic on shapes.
    iterations: `[num_nodes]`, how often a node runs in a step.
    unknown_loops: names of loops whose number of iterations is unknown.
    not_inlined: names of calls that TensorFlow does not inline.
    """

    graph_def: Any
    nodes: Sequence[Node]
    op_of: Sequence[int | None]
    on_host: Sequence[bool]
    iterations: Sequence[int]
    unknown_loops: Sequence[str]
    not_inlined: Collection[str]


def unfold(meta_graph: Any, step: StepGraph) -> Unfolded:
    """Inline the functions of a step; `step` was read from `meta_graph`.

    Raises:
        BadInputError: TensorFlow cannot rewrite the graph.
    """
    flat = lowered(meta_graph)
    if flat is meta_graph:
        parsed, where = step.wiring, step.sites
    else:
        parsed = wiring(flat)
        where = sites(parsed.nodes, parsed.op_defs)
    nodes = parsed.nodes
    loops = Loops(flat.graph_def, nodes, parsed.order)
    op_of_node = {node: op for op, members in enumerate(step.nodes) for node in members}
    original = {node.name for node in meta_graph.graph_def.node}
    calls = _calls(meta_graph.graph_def)
    plain = {node.name for node in meta_graph.graph_def.node if node.op in CALLS}

    def op_of(name: str) -> int | None:
        caller = name if name in original else _caller(name, calls)
        return None if name.startswith(PLUMBING) and caller in plain else op_of_node.get(caller)

    return Unfolded(
        graph_def=flat.graph_def,
        nodes=nodes,
        op_of=[op_of(node.name) for node in nodes],
        on_host=[bool(site.host_outputs) and all(site.host_outputs) for site in where],
        iterations=[loops.iterations(index) for index in range(len(nodes))],
        unknown_loops=[frame[-1] for frame in loops.of_unknown_length],
        not_inlined=_calls(flat.graph_def).intersection(node.name for node in nodes),
    )


def lowered(meta_graph: Any) -> Any:
    """Return the MetaGraphDef with its functions inlined and its loops as v1 frames.

    A graph without calls is returned unchanged. The nodes that replace a call `f` have names that
    begin with `f/`. Functions that XLA compiles, and those that forbid it, are inlined, too: the
    result is never run.

    Raises:
        BadInputError: TensorFlow cannot rewrite the graph.
    """
    if not _calls(meta_graph.graph_def):
        return meta_graph
    tf1 = tensorflow().compat.v1
    from tensorflow.python.grappler import tf_optimizer

    request = tf1.MetaGraphDef()
    request.CopyFrom(meta_graph)
    bodies = [node for function in request.graph_def.library.function for node in function.node_def]
    for node in (*request.graph_def.node, *bodies):
        if node.op in FUNCTIONAL_CONTROL_FLOW:
            node.attr[LOWERED].b = True
    for each in (*request.graph_def.node, *bodies, *request.graph_def.library.function):
        for name in STAYS_ONE_OP:
            each.attr.pop(name, None)
    config = tf1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.min_graph_nodes = -1
    rewrites.meta_optimizer_iterations = rewrites.ONE
    rewrites.optimizers.append("function")
    rewrites.function_optimization = rewrites.AGGRESSIVE
    try:
        graph_def = tf_optimizer.OptimizeGraph(config, request)
    except Exception as error:
        raise BadInputError(
            f"TensorFlow cannot inline the graph's functions ({error}); a graph that it can run "
            "was expected: export it again."
        ) from error
    request.graph_def.CopyFrom(graph_def)
    return request


def _calls(graph_def: Any) -> frozenset[str]:
    """Return the names of the nodes that call functions."""
    functions = {function.signature.name for function in graph_def.library.function}
    types = functions.union(CALLS, FUNCTIONAL_CONTROL_FLOW)
    return frozenset(node.name for node in graph_def.node if node.op in types)


def _caller(name: str, calls: Collection[str]) -> str:
    """Return the outermost of `calls` whose inlining created a node, else the node's own name."""
    parts = name.removeprefix(PLUMBING).split("/")
    prefixes = ("/".join(parts[:length]) for length in range(1, len(parts)))
    return next((prefix for prefix in prefixes if prefix in calls), name)
