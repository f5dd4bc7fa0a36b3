"""Put variables back into the graph of a traced function that TensorBoard recorded.

There, the handles that the function captured are placeholders. Type and shape of a variable follow
from the consumers of its handle: from the type of what is read or assigned, and from its shape as
far as TensorFlow infers it. The shape of one variable may determine those of others, so inference
is repeated until no shape changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.completion import imported
from pesto_cli.graphdef.event_files.events import HANDLE_SHAPES, HANDLE_TYPES
from pesto_cli.graphdef.event_files.fed_iterators import feed_iterators
from pesto_cli.graphdef.event_files.handles import handles, is_handle_type
from pesto_cli.graphdef.fetches import Shape, forget_inferred_shapes
from pesto_cli.graphdef.grappler import inline_functions
from pesto_cli.graphdef.initial_values import add_initialisers, drawn_values
from pesto_cli.graphdef.signature import OpDefs, data_type, node_type
from pesto_cli.graphdef.structure import drop_missing_colocation
from pesto_cli.graphdef.tensorflow import tensorflow

# Types of the arguments and results of a function's graph once TensorFlow has instantiated it.
_ARGUMENTS = frozenset({"_Arg", "_DeviceArg"})
_RETURNS = frozenset({"_Retval", "_DeviceRetval"})
# The slot of the first input that a functional op passes to the functions that it calls; 0 for
# types that are not listed.
_PASSED_FROM = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1}
# Limit on rounds of shape inference; each round finds the shape of at least one more variable.
_MAX_ROUNDS = 20


@dataclass(frozen=True)
class _Use:
    """An input slot (`place`) of a node (`node`) that consumes a handle.

    is_inner: whether the node is in a function that the graph calls.
    """

    node: Any
    place: int
    is_inner: bool


def returned_tensors(meta: Any) -> tuple[Any, list[str]]:
    """Return a copy with placeholders for a function's arguments, and the names of its outputs.

    Outputs that are handles are left out.
    """
    copy = type(meta)()
    copy.CopyFrom(meta)
    returns = [node for node in copy.graph_def.node if node.op in _RETURNS]
    kept = [node for node in copy.graph_def.node if node.op not in _RETURNS]
    outputs = [
        node.input[0]
        for node in sorted(returns, key=lambda node: node.attr["index"].i)
        if not is_handle_type(node.attr["T"].type)
    ]
    names = {node.name for node in kept}
    for node in kept:
        if node.op in _ARGUMENTS:
            _become_placeholder(node)
        drop_missing_colocation(node, names)
    del copy.graph_def.node[:]
    copy.graph_def.node.extend(kept)
    return copy, [output if ":" in output else f"{output}:0" for output in outputs]


def with_variables(meta: Any, shapes: Mapping[str, Shape], what: str) -> Any:
    """Return the graph with initialised variables in place of the placeholders of their handles.

    Initial values are random. Elements of captured iterators become placeholders that are fed. A
    graph without captured handles is returned unchanged.

    shapes: node name -> shape, for variables whose shape the graph leaves open.
    what: names the graph in errors.

    Raises:
        BadInputError: a handle is that of another resource, or the shape of a variable is open.
    """
    if not handles(meta.graph_def):
        return meta
    tf1 = tensorflow().compat.v1
    flat = inline_functions(meta, what, whole_conditionals=True)
    feed_iterators(flat.graph_def)
    variables = _variables(flat.graph_def, shapes, what)
    _place_variables(flat.graph_def, variables)
    forget_inferred_shapes(flat.graph_def)
    with tf1.Graph().as_default() as graph:
        imported(flat, what)
        add_initialisers(graph, drawn_values(variables))
        return tf1.train.export_meta_graph(graph=graph)


def _become_placeholder(node: Any) -> None:
    node.op = "Placeholder"
    node.attr["dtype"].type = node.attr["T"].type
    shapes = node.attr["_output_shapes"].list.shape if "_output_shapes" in node.attr else []
    if shapes:
        node.attr["shape"].shape.CopyFrom(shapes[0])
    else:
        node.attr["shape"].shape.unknown_rank = True
    for name in ("T", "index"):
        node.attr.pop(name, None)


def _variables(graph_def: Any, given: Mapping[str, Shape], what: str) -> dict[str, Any]:
    """Return the TensorSpec of each variable, by the node name of its handle."""
    tf = tensorflow()
    uses = _uses(graph_def)
    op_defs = OpDefs(graph_def.library)
    noted = {node.name: node.attr for node in graph_def.node if node.name in uses}
    dtypes = {name: _dtype(name, noted[name], found, what) for name, found in uses.items()}
    shapes = {name: _noted_shape(noted[name], given.get(name)) for name in uses}
    for _ in range(_MAX_ROUNDS):
        specs = {name: tf.TensorSpec(shapes[name], dtypes[name]) for name in uses}
        graph = _inferred(graph_def, specs, what)
        merged = {
            name: _merged(name, shapes[name], _shapes(found, graph, op_defs), what)
            for name, found in uses.items()
        }
        if all(str(merged[name]) == str(shapes[name]) for name in uses):
            break
        shapes = merged
    _check_static(shapes, what)
    return {name: tf.TensorSpec(shapes[name], dtypes[name]) for name in uses}


def _check_static(shapes: Mapping[str, Any], what: str) -> None:
    unknown = {name: shape for name, shape in shapes.items() if not shape.is_fully_defined()}
    if unknown:
        name, shape = next(iter(unknown.items()))
        sizes = "any" if shape.rank is None else str([size or "?" for size in shape.as_list()])
        raise BadInputError(
            f"{what}: the graph does not state the shapes of {len(unknown)} of {len(shapes)}"
            f" variables, where static shapes were expected; the shape of {name!r} is {sizes}. Give"
            f" the shapes (--feed {name}=3,3,64,64), or record the graph with"
            " tf.summary.graph(concrete_function.graph), which keeps shapes."
        )


def _uses(graph_def: Any) -> dict[str, list[_Use]]:
    """Return the uses of each handle by name, including those in functions that the graph calls."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    handle_of = handles(graph_def)
    uses: dict[str, list[_Use]] = {name: [] for name in handle_of.values()}
    for node in graph_def.node:
        for place, source in enumerate(node.input):
            if source in handle_of and node.name not in handle_of:
                found = _within(_Use(node, place, is_inner=False), functions)
                uses[handle_of[source]] += found
    return {name: found for name, found in uses.items() if found}


def _within(use: _Use, functions: Mapping[str, Any]) -> Iterator[_Use]:
    """Yield a use; if its node calls functions, yield the uses inside these functions instead."""
    called = [
        function.name
        for attr in use.node.attr.values()
        for function in ([attr.func] if attr.HasField("func") else attr.list.func)
        if function.name in functions
    ]
    if not called:
        yield use
    place = use.place - _PASSED_FROM.get(use.node.op, 0)
    for name in called:
        argument = functions[name].signature.input_arg[place].name
        for node in functions[name].node_def:
            for inner, source in enumerate(node.input):
                if source == argument:
                    yield from _within(_Use(node, inner, is_inner=True), functions)


def _noted_shape(attributes: Any, given: Shape | None) -> Any:
    """Return the shape that the user gave, else the one TensorFlow recorded, else any shape."""
    tf = tensorflow()
    noted = attributes[HANDLE_SHAPES].list.shape if HANDLE_SHAPES in attributes else ()
    return tf.TensorShape(noted[0] if given is None and noted else given)


def _dtype(name: str, attributes: Any, uses: Sequence[_Use], what: str) -> Any:
    """Return the data type of a variable, as TensorFlow recorded it, else according to its uses."""
    noted = attributes[HANDLE_TYPES].list.type if HANDLE_TYPES in attributes else ()
    if noted and (dtype := data_type(noted[0])) is not None:
        return dtype
    for use in uses:
        if use.node.op in ("ReadVariableOp", "ResourceGather", "ResourceGatherNd"):
            return node_type(use.node, "dtype")
        if use.node.op.startswith(("Assign", "ResourceScatter", "ResourceStridedSlice")):
            attribute = "dtype" if "dtype" in use.node.attr else "T"
            return node_type(use.node, attribute)
        if use.node.op.startswith(("ResourceApply", "ResourceSparseApply")):
            return node_type(use.node, "T")
    raise BadInputError(
        f"{what}: {name!r}, an input of {uses[0].node.name!r} ({uses[0].node.op}), is a resource"
        " other than a variable, such as a lookup table or a summary writer; only variables were"
        " expected. Record a step without it."
    )


def _inferred(graph_def: Any, variables: Mapping[str, Any], what: str) -> Any:
    """Import a GraphDef into a tf.Graph; TensorFlow infers the missing shapes."""
    tf = tensorflow()
    known = type(graph_def)()
    known.CopyFrom(graph_def)
    _place_variables(known, variables)
    with tf.compat.v1.Graph().as_default() as graph:
        try:
            tf.compat.v1.import_graph_def(known, name="")
        except (ValueError, tf.errors.OpError) as error:
            raise BadInputError(
                f"{what}: TensorFlow cannot import the graph ({error}); a graph that it can run was"
                " expected: record it again, or give the variables other shapes with --feed."
            ) from error
    return graph


def _place_variables(graph_def: Any, variables: Mapping[str, Any]) -> None:
    """Convert placeholders to the handles of variables, in place."""
    for node in graph_def.node:
        if node.name in variables:
            spec = variables[node.name]
            node.op = "VarHandleOp"
            node.attr.clear()
            node.attr["dtype"].type = spec.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(spec.shape.as_proto())
            node.attr["shared_name"].s = node.name.encode()


def _shapes(uses: Sequence[_Use], graph: Any, op_defs: OpDefs) -> Iterator[Any]:
    """Yield the shape of a variable according to each of its uses; it may be partly open."""
    tf = tensorflow()
    for use in uses:
        node = use.node
        if use.is_inner:
            if node.op == "ReadVariableOp" and node.attr["_output_shapes"].list.shape:
                yield tf.TensorShape(node.attr["_output_shapes"].list.shape[0])
            continue
        operation = graph.get_operation_by_name(node.name)
        arguments = [argument.name for argument in op_defs.signature(node).inputs]
        if node.op == "ReadVariableOp":
            yield operation.outputs[0].shape
        elif node.op in ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"):
            yield operation.inputs[1].shape
        elif node.op == "ResourceGather" or node.op.startswith("ResourceScatter"):
            rows = operation.outputs[0] if node.op == "ResourceGather" else operation.inputs[2]
            yield _of_rows(rows.shape, operation.inputs[1].shape.rank)
        elif node.op.startswith("ResourceSparseApply"):
            yield _of_rows(operation.inputs[arguments.index("grad")].shape, 1)
        elif node.op.startswith("ResourceApply") and _is_slot(arguments[use.place]):
            yield operation.inputs[arguments.index("grad")].shape


def _is_slot(argument: str) -> bool:
    """Return whether an optimiser's argument has the shape of the gradient."""
    return not argument.endswith("power")


def _of_rows(shape: Any, index_rank: int | None) -> Any:
    """Return a variable's shape from the shape of some rows; the number of rows stays open."""
    tf = tensorflow()
    if shape.rank is None or index_rank is None:
        return tf.TensorShape(None)
    return tf.TensorShape([None]).concatenate(shape[index_rank:])


def _merged(name: str, known: Any, found: Iterator[Any], what: str) -> Any:
    for shape in found:
        try:
            known = known.merge_with(shape)
        except ValueError:
            raise BadInputError(
                f"{what}: variable {name!r} has the shape {known} in one use and {shape} in"
                " another; one shape was expected: give it with --feed, or record the graph again."
            ) from None
    return known
