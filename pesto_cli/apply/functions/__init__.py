"""A concrete `tf.function` under a placement: the same signature and variables, another graph.

The function is inlined and simplified as `pesto export` does, so that its ops have the names of the
placement; devices and control inputs are set, and a new function is made of that, which captures
what the first one does. TensorFlow's runtime for functions of several devices runs it as it stands.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pesto_cli.apply.device_names import check_devices, is_of
from pesto_cli.apply.edits import Changes, Order, changes_of_step
from pesto_cli.apply.live.same_step import difference
from pesto_cli.apply.placed import with_changes
from pesto_cli.apply.session import session_config
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef import grappler
from pesto_cli.graphdef.fetches import TRAIN_OP, fetch_names, node_name
from pesto_cli.graphdef.functions import Capture, function_captures, function_graph
from pesto_cli.graphdef.nodes import Node, needed_nodes
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.simplify import simplify
from pesto_cli.graphdef.tensorflow import tensorflow

SHOWN_VARIABLES = 3


class PlacedFunction:
    """A function that runs placed, called like the concrete function that it was made of.

    changes: the device of every op, and the control inputs that were added.
    """

    def __init__(self, original: Any, placed: Any, changes: Changes) -> None:
        self.changes = changes
        self._original, self._placed = original, placed  # The original keeps the variables alive.
        self._config = session_config()

    @property
    def variables(self) -> Sequence[Any]:
        """The variables that the function uses, which are those of the original."""
        return tuple(self._original.variables)

    @property
    def graph(self) -> Any:
        """The placed FuncGraph."""
        return self._placed.graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step.

        Raises BadInputError when it is called while another function is traced.
        """
        if not tensorflow().executing_eagerly():
            raise BadInputError(
                "a placed function is called within another tf.function, which would not keep its"
                " devices and order; a call from Python was expected: leave out the outer one."
            )
        with _as_it_stands(self._config):
            return self._placed(*args, **kwargs)


def place_function(
    concrete: Any,
    placement: PlacementFile,
    *,
    devices: Mapping[str, str] | None = None,
    order: Order = "full",
) -> PlacedFunction:
    """Return a callable that does what a concrete function does, under a placement.

    Args:
        concrete: what `tf.function(...).get_concrete_function(...)` returns.
        placement: of the graph that `pesto export script.py:function` makes of the same function,
            simplified or as it is built, but not optimised by grappler.
        devices: planned device -> TensorFlow's; by default `/device:GPU:0` for `GPU:0`.
        order: "full" or "none", see `planned_changes`.

    Raises:
        BadInputError: the placement is of another function; a device is not there; or a variable
            lies on another device than the placement has it (see `placed_variables`).
    """
    what = f"function {concrete.graph.name!r}"
    if concrete.graph.deferred_internal_captures:
        raise BadInputError(
            f"{what}: captures values that are looked up at every call, where captured variables"
            " and constants were expected: pass them as arguments."
        )
    meta = grappler.inline_functions(function_graph(concrete, what, with_values=False), what)
    simplify(meta, placement.names)
    step = read_step(meta, what, open_shapes=True)
    unlike = difference(step, placement)
    if unlike is not None:
        raise BadInputError(
            f"{what} is not the one that was placed ({unlike}), where the placement's was expected:"
            " export this function (pesto export script.py:function) without --optimize, profile"
            " and solve that."
        )
    changes = changes_of_step(meta, step, placement, order=order, devices=devices)
    check_devices(set(changes.device.values()), _devices_there(), what)
    captures = function_captures(concrete, what, with_values=False)
    _check_variables(captures, changes, what)
    placed = _rebuilt(concrete, with_changes(meta, changes), captures)
    return PlacedFunction(concrete, placed, changes)


def _check_variables(captures: Sequence[Capture], changes: Changes, what: str) -> None:
    """What uses a variable runs where it lies: TensorFlow would move it there, and not say so."""
    elsewhere = [
        f"{capture.name!r} lies on {capture.variable.device}, placed on"
        f" {changes.device[capture.name]}"
        for capture in captures
        if capture.variable is not None
        and capture.name in changes.device
        and not is_of(capture.variable.device, changes.device[capture.name])
    ]
    if elsewhere:
        more = f"; ... ({len(elsewhere)} in all)" if len(elsewhere) > SHOWN_VARIABLES else ""
        raise BadInputError(
            f"{what}: variables are not on their devices: {'; '.join(elsewhere[:SHOWN_VARIABLES])}"
            f"{more}. Create them, and trace the function, within"
            " pesto_cli.apply.placed_variables(placement, devices), or pin them to where they are"
            " (pesto solve --constraints)."
        )


def _rebuilt(concrete: Any, meta: Any, captures: Sequence[Capture]) -> Any:
    """Return a concrete function with the graph of a MetaGraphDef, and what the first captures."""
    tf = tensorflow()
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
    from tensorflow.python.framework.func_graph import FuncGraph

    nodes = needed_nodes(meta.graph_def, map(node_name, fetch_names(meta)))
    present = {node.name for node in nodes}
    graph = FuncGraph(f"placed_{concrete.graph.name}")
    with graph.as_default():
        arguments = {
            tensor.op.name: tf.compat.v1.placeholder(
                tensor.dtype, tensor.shape, name=tensor.op.name
            )
            for tensor in _arguments(concrete)
        }
        handles = {
            capture.name: graph.capture(capture.external, name=f"captured/{capture.name}")
            for capture in captures
            if capture.variable is not None and capture.name in present
        }
        _import(meta.graph_def, nodes, arguments | handles)
        graph.outputs = [graph.get_tensor_by_name(tensor.name) for tensor in concrete.graph.outputs]
        graph.control_outputs = [graph.get_operation_by_name(TRAIN_OP)]
    graph.inputs = [*arguments.values(), *graph.internal_captures]
    graph.structured_outputs = concrete.structured_outputs
    graph.structured_input_signature = concrete.structured_input_signature
    return ConcreteFunction.from_func_graph(graph, _with_captures(concrete, graph), {})


def _import(graph_def: Any, nodes: Sequence[Node], outside: Mapping[str, Any]) -> None:
    """Import nodes into the default graph, some of them given from outside, by name."""
    tf = tensorflow()
    body = tf.compat.v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
    body.node.extend(node.proto for node in nodes if node.name not in outside)
    taken = {nodes[source].name for node in nodes for source, _ in node.inputs}
    given = {f"{name}:0": tensor for name, tensor in outside.items() if name in taken}
    tf.import_graph_def(body, input_map=given, name="")


def _arguments(concrete: Any) -> list[Any]:
    """Return the placeholders of the arguments, in order."""
    inside = {id(tensor) for tensor in concrete.graph.internal_captures}
    return [tensor for tensor in concrete.graph.inputs if id(tensor) not in inside]


def _with_captures(concrete: Any, graph: Any) -> Any:
    """Return the type of a function with the captures of another graph."""
    from tensorflow.core.function.polymorphism.function_type import FunctionType

    return FunctionType(
        concrete.function_type.parameters.values(),
        OrderedDict(graph.function_captures.capture_types),
        return_annotation=concrete.function_type.output,
    )


def _devices_there() -> list[str]:
    from tensorflow.python.eager import context

    return list(context.context().devices())


@contextmanager
def _as_it_stands(config: Any) -> Iterator[None]:
    """Have functions called in this thread run under a ConfigProto."""
    from tensorflow.python.eager import context

    running = context.context()
    before = running.function_call_options
    running.function_call_options = context.FunctionCallOptions(config_proto=config)
    try:
        yield
    finally:
        running.function_call_options = before
