"""Apply a placement to a concrete `tf.function`: the same signature and variables, a new graph.

The function is inlined and simplified in the same way as by `pesto export`, so its ops have the
names in the placement. Devices and control inputs are set in this graph, and a new function is
built from it, with the captures of the original. TensorFlow's runtime for multi-device functions
runs it unchanged.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pesto_cli.apply.device_names import check_devices, is_of
from pesto_cli.apply.edits import Changes, Order, changes_of_step
from pesto_cli.apply.functions.whole_variables import check_whole_variables
from pesto_cli.apply.placed import with_changes
from pesto_cli.apply.same_step import difference
from pesto_cli.apply.session import session_config
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef import grappler
from pesto_cli.graphdef.fetches import TRAIN_OP, fetch_names, node_name
from pesto_cli.graphdef.functions import Capture, arguments, function_captures, function_graph
from pesto_cli.graphdef.nodes import Node, needed_nodes
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.simplify import simplify
from pesto_cli.graphdef.tensorflow import tensorflow

SHOWN_VARIABLES = 3


class PlacedFunction:
    """A placed function; it is called in the same way as the concrete function it was built from.

    meta: the graph before it was placed.
    changes: the device of every op, and the added control inputs.
    """

    def __init__(self, original: Any, placed: Any, meta: Any, changes: Changes) -> None:
        self.meta, self.changes = meta, changes
        self._original, self._placed = original, placed  # The original keeps the variables alive.
        self._config = session_config()

    @property
    def variables(self) -> Sequence[Any]:
        """The variables that the function uses: those of the original."""
        return tuple(self._original.variables)

    @property
    def graph(self) -> Any:
        """The placed FuncGraph."""
        return self._placed.graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step.

        Raises BadInputError when the function is called while another one is traced.
        """
        if not tensorflow().executing_eagerly():
            raise BadInputError(
                "a placed function is called within another tf.function, which would not keep its"
                " devices and order; a call from Python was expected: remove the outer tf.function."
            )
        with _function_config(self._config):
            return self._placed(*args, **kwargs)


class OtherFunctionError(BadInputError):
    """The placement is of another function."""


def place_function(
    concrete: Any,
    placement: PlacementFile,
    *,
    devices: Mapping[str, str] | None = None,
    order: Order = "full",
    export: str = "pesto export script.py:function",
) -> PlacedFunction:
    """Return a callable that computes the same as a concrete function, with a placement applied.

    Args:
        concrete: the result of `tf.function(...).get_concrete_function(...)`.
        placement: a placement of the graph that `pesto export script.py:function` writes for the
            same function, with or without `--as-built`, but without `--optimize`.
        devices: planned device -> TensorFlow device; by default `/device:GPU:0` for `GPU:0`.
        order: "full" or "none", see `planned_changes`.
        export: the command that exports the graph of the function, for the message of an error.

    Raises:
        OtherFunctionError: the placement is of another function.
        BadInputError: the placement splits a variable, a device does not exist, or a variable is
            not on its planned device (see `placed_variables`).
    """
    what = f"function {concrete.graph.name!r}"
    if concrete.graph.deferred_internal_captures:
        raise BadInputError(
            f"{what}: captures values that TensorFlow looks up at every call; captured variables"
            " and constants were expected: pass the values as arguments."
        )
    meta = grappler.inline_functions(function_graph(concrete, what, with_values=False), what)
    simplify(meta, placement.graph_ops)
    step = read_step(meta, what, open_shapes=True)
    unlike = difference(step, placement)
    if unlike is not None:
        raise OtherFunctionError(
            f"{what} is not the function of the placement ({unlike}); a placement of this function"
            f" was expected: export it without --optimize ({export}), then profile and solve the"
            " exported graph."
        )
    check_whole_variables(step, placement, what)
    changes = changes_of_step(meta, step, placement, order=order, devices=devices, what=what)
    check_devices(set(changes.device.values()), _existing_devices(), what)
    captures = function_captures(concrete, what, with_values=False)
    _check_variables(captures, changes, what)
    placed = _rebuilt(concrete, with_changes(meta, changes), captures)
    return PlacedFunction(concrete, placed, meta, changes)


def _check_variables(captures: Sequence[Capture], changes: Changes, what: str) -> None:
    """Raise BadInputError if a variable is not on its planned device.

    Otherwise, TensorFlow would silently move the ops that use the variable to its device.
    """
    elsewhere = [
        f"{capture.name!r} is on {capture.variable.device}, but placed on"
        f" {changes.device[capture.name]}"
        for capture in captures
        if capture.variable is not None
        and capture.name in changes.device
        and not is_of(capture.variable.device, changes.device[capture.name])
    ]
    if elsewhere:
        more = f"; ... ({len(elsewhere)} in all)" if len(elsewhere) > SHOWN_VARIABLES else ""
        raise BadInputError(
            f"{what}: variables are not on their planned devices:"
            f" {'; '.join(elsewhere[:SHOWN_VARIABLES])}{more}. Create them, and trace the function,"
            " within pesto_cli.apply.placed_variables(placement, devices), or pin them to their"
            " current devices (pesto solve --constraints)."
        )


def _rebuilt(concrete: Any, meta: Any, captures: Sequence[Capture]) -> Any:
    """Return a concrete function with the graph of `meta` and the captures of `concrete`."""
    tf = tensorflow()
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
    from tensorflow.python.framework.func_graph import FuncGraph

    nodes = needed_nodes(meta.graph_def, map(node_name, fetch_names(meta)))
    present = {node.name for node in nodes}
    graph = FuncGraph(f"placed_{concrete.graph.name}")
    with graph.as_default():
        placeholders = {
            tensor.op.name: tf.compat.v1.placeholder(
                tensor.dtype, tensor.shape, name=tensor.op.name
            )
            for tensor in arguments(concrete)
        }
        handles = {
            capture.name: graph.capture(capture.external, name=f"captured/{capture.name}")
            for capture in captures
            if capture.variable is not None and capture.name in present
        }
        _import(meta.graph_def, nodes, placeholders | handles)
        _register(meta.graph_def.library)
        graph.outputs = [graph.get_tensor_by_name(tensor.name) for tensor in concrete.graph.outputs]
        graph.control_outputs = [graph.get_operation_by_name(TRAIN_OP)]
    graph.inputs = [*placeholders.values(), *graph.internal_captures]
    graph.structured_outputs = concrete.structured_outputs
    graph.structured_input_signature = concrete.structured_input_signature
    return ConcreteFunction.from_func_graph(graph, _with_captures(concrete, graph), {})


def _import(graph_def: Any, nodes: Sequence[Node], outside: Mapping[str, Any]) -> None:
    """Import nodes into the default graph; tensors in `outside`, by node name, replace nodes."""
    tf = tensorflow()
    body = tf.compat.v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
    body.node.extend(node.proto for node in nodes if node.name not in outside)
    taken = {nodes[source].name for node in nodes for source, _ in node.inputs}
    given = {f"{name}:0": tensor for name, tensor in outside.items() if name in taken}
    tf.import_graph_def(body, input_map=given, name="")


def _register(library: Any) -> None:
    """Register the functions that export has made of the program's own (see `values_of_calls`)."""
    from tensorflow.python.eager import context

    for function in library.function:
        if not context.context().has_function(function.signature.name):
            context.context().add_function_def(function)


def _with_captures(concrete: Any, graph: Any) -> Any:
    """Return the function type of `concrete` with the captures of another graph."""
    from tensorflow.core.function.polymorphism.function_type import FunctionType

    return FunctionType(
        concrete.function_type.parameters.values(),
        OrderedDict(graph.function_captures.capture_types),
        return_annotation=concrete.function_type.output,
    )


def _existing_devices() -> list[str]:
    from tensorflow.python.eager import context

    return list(context.context().devices())


@contextmanager
def _function_config(config: Any) -> Iterator[None]:
    """Run the functions that this thread calls within the context with a ConfigProto."""
    from tensorflow.python.eager import context

    running = context.context()
    before = running.function_call_options
    running.function_call_options = context.FunctionCallOptions(config_proto=config)
    try:
        yield
    finally:
        running.function_call_options = before
