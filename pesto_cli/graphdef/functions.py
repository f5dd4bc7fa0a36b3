"""Trace a `tf.function` and convert it to a v1 graph."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.failures import STYLE
from pesto_cli.graphdef.fetches import TRAIN_OP, drop_colocation
from pesto_cli.graphdef.initial_values import initial_values
from pesto_cli.graphdef.self_contained import require_one_replica
from pesto_cli.graphdef.specs import call_arguments
from pesto_cli.graphdef.tensorflow import tensorflow

SHOWN_OF_A_REASON = 300


def concrete_function(function: Any, specs: Any, what: str) -> Any:
    """Return the concrete function of a tf.function for input specs, or for its own signature.

    specs: in the form that `call_arguments` expects; None if the user gave none.
    what: names the source in errors.

    Raises BadInputError when there are neither specs nor an input signature, or tracing fails.
    """
    tf = tensorflow()
    if isinstance(function, tf.types.experimental.ConcreteFunction):
        return function
    if specs is None and function.input_signature is None:
        raise BadInputError(
            f"{what}: a tf.function without input specs, where (function, [tf.TensorSpec(...)])"
            " was expected. Return the specs with the function, or declare an input_signature."
        )
    args, kwargs = ((), {}) if specs is None else call_arguments(function, specs, what)
    return traced(function, args, kwargs, f"{what}: the tf.function")


def traced(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> Any:
    """Return the concrete function of a tf.function for these arguments.

    Raises BadInputError, with the reason in one line, when tracing fails.
    """
    try:
        return function.get_concrete_function(*args, **kwargs)
    except Exception as error:
        raise BadInputError(f"{what} cannot be traced{_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return the reason why tracing failed, preceded by the last line of user code in the stack.

    AutoGraph's message has a listing of code lines, in which `*` marks user code, and then the
    error. In the listing, a lambda has the name `None`.
    """
    text = STYLE.sub("", str(error)).strip()
    where = ""
    if text.startswith("in user code:"):
        *frames, text = re.split(r"\n *\n", text, maxsplit=2)
        own = re.findall(r", line (\d+), in (\S+) +\*\n", "\n".join(frames))
        where = " in line {} ({})".format(*own[-1]).removesuffix(" (None)") if own else ""
    else:
        text = f"{type(error).__name__}: {text}"
    return f"{where}: {textwrap.shorten(text, SHOWN_OF_A_REASON, placeholder=' ...')}"


def function_graph(concrete: Any, what: str, *, with_values: bool = True) -> Any:
    """Return a MetaGraphDef with the function's body as its graph; calls in it are not inlined.

    Captured variables become variables of the graph, initialised with their current values, or with
    zeros if not `with_values`. The first fetch is a new op `train_op` that runs the function's side
    effects (updates of variables); the other fetches are the function's outputs.
    """
    tf1 = tensorflow().compat.v1
    captures = function_captures(concrete, what, with_values=with_values)
    body = _without_nodes(
        concrete.graph.as_graph_def(), {capture.inside.op.name for capture in captures}
    )
    with tf1.Graph().as_default() as graph:
        replacements = _replacements(captures)
        tf1.import_graph_def(body, input_map=replacements, name="")
        effects = [graph.get_operation_by_name(op.name) for op in concrete.graph.control_outputs]
        outputs = _outputs(concrete, graph, replacements)
        train_op = tf1.group(*(effects or outputs), name=TRAIN_OP)
        for fetch in (train_op, *outputs):
            graph.add_to_collection(TRAIN_OP, fetch)
        return tf1.train.export_meta_graph(graph=graph)


def arguments(concrete: Any) -> list[Any]:
    """Return the placeholders of a concrete function's arguments, in order."""
    inside = {id(tensor) for tensor in concrete.graph.internal_captures}
    return [tensor for tensor in concrete.graph.inputs if id(tensor) not in inside]


@dataclass(frozen=True)
class Capture:
    """A tensor or variable outside a function that the function's body uses."""

    external: Any
    """The tensor or handle outside the function."""
    inside: Any
    """The placeholder in the body."""
    value: Any
    """numpy array; None for a variable whose value is not needed."""
    variable: Any
    """The captured variable; None for a constant."""
    name: str
    """The name of its node in the new graph; no node of the body has it."""


def function_captures(concrete: Any, what: str, *, with_values: bool = True) -> list[Capture]:
    """Return the captures of a concrete function, named as in the graph of `function_graph`.

    Raises BadInputError for a resource that is not a variable, for a variable without a value (only
    if `with_values`), for a tensor of another trace, and for a function of several replicas.
    """
    tf = tensorflow()
    operations = {operation.name: operation.type for operation in concrete.graph.get_operations()}
    names = (variable.name.split(":")[0] for variable in concrete.graph.variables)
    require_one_replica([*names, *operations.values()], what)
    variables = {id(variable.handle): variable for variable in concrete.graph.variables}
    captured = [variables[id(each)] for each, _ in concrete.graph.captures if id(each) in variables]
    name_of = _variable_names(captured, set(operations))
    captures = []
    for external, inside in concrete.graph.captures:
        variable = variables.get(id(external))
        if variable is not None:
            value = _value(variable, what) if with_values else None
            captures.append(Capture(external, inside, value, variable, name_of[id(variable)]))
        elif external.dtype in (tf.resource, tf.variant):
            raise BadInputError(
                f"{what}: the function uses a resource that is not a variable ({inside.name}), such"
                " as a lookup table or an iterator, which cannot be exported. Save the model with"
                " tf.saved_model.save and export that, or pass the data as arguments."
            )
        elif tf.is_symbolic_tensor(external):
            raise BadInputError(
                f"{what}: the function uses the tensor {external.name!r}, which exists only within"
                " another trace. If a layer keeps it, call the model on a batch, or give it its"
                " input shapes, before the step is traced."
            )
        else:
            captures.append(Capture(external, inside, external.numpy(), None, inside.op.name))
    return captures


def _replacements(captures: Sequence[Capture]) -> dict[str, Any]:
    """Add captures to the default graph; return {placeholder in the body: tensor or handle}."""
    tf1 = tensorflow().compat.v1
    builders = initial_values(
        {c.name: c.value for c in captures if c.variable is not None and c.value is not None}
    )
    return {
        capture.inside.name: tf1.constant(capture.value, capture.inside.dtype, name=capture.name)
        if capture.variable is None
        else _variable(capture.variable, capture.name, builders.get(capture.name)).handle
        for capture in captures
    }


def _variable(original: Any, name: str, initial_value: Any) -> Any:
    tf = tensorflow()
    return tf.compat.v1.Variable(
        initial_value or (lambda: tf.zeros(original.shape, original.dtype)),
        name=name,
        dtype=original.dtype,
        trainable=original.trainable,
        use_resource=True,
    )


def _value(variable: Any, what: str) -> Any:
    try:
        return variable.numpy()
    except Exception as error:
        raise BadInputError(
            f"{what}: variable {variable.name!r} has no value yet ({error}). Create the function's"
            " variables before returning it."
        ) from error


def _variable_names(variables: Sequence[Any], taken: set[str]) -> dict[int, str]:
    """Return a free name of each variable by its id; those with one name are numbered.

    The numbers follow the order in which the variables were created, which is that of their unique
    ids. It is also known when variables are created on their devices (`placed_variables`).
    """
    names: dict[int, str] = {}
    for variable in sorted(variables, key=lambda each: int(each._unique_id.rpartition("_")[2])):
        base = name = variable.name.split(":")[0]
        count = 0
        while name in taken:
            count += 1
            name = f"{base}_variable_{count}"
        taken.add(name)
        names[id(variable)] = name
    return names


def _outputs(concrete: Any, graph: Any, replacements: Mapping[str, Any]) -> list[Any]:
    """Return the output tensors in the new graph, each once; an output `loss` comes first."""
    structured = concrete.structured_outputs
    names = [tensor.name for tensor in concrete.graph.outputs]
    if isinstance(structured, Mapping) and getattr(structured.get("loss"), "name", None) in names:
        names.insert(0, structured["loss"].name)
    return [
        replacements[name] if name in replacements else graph.get_tensor_by_name(name)
        for name in dict.fromkeys(names)
    ]


def _without_nodes(graph_def: Any, names: set[str]) -> Any:
    """Return a copy without some nodes, and without colocation requests that name them.

    A lookup in a captured variable requests the device of the placeholder that stands for it.
    """
    kept = type(graph_def)()
    kept.versions.CopyFrom(graph_def.versions)
    kept.library.CopyFrom(graph_def.library)
    kept.node.extend(node for node in graph_def.node if node.name not in names)
    drop_colocation(kept.node, names)
    return kept
