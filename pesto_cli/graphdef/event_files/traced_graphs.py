"""The graph of a traced function as TensorBoard has it, with variables in place of their handles.

The handles that a function captured are placeholders there. What they stand for is read off their
consumers: the type of what is read or assigned, and its shape as far as TensorFlow infers it. A
variable that takes its shape lets others infer theirs, so that goes on until nothing is new.
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
from pesto_cli.graphdef.structure import leave_lost_company
from pesto_cli.graphdef.tensorflow import tensorflow

# The ends of a function's graph once TensorFlow has instantiated it.
_ARGUMENTS = frozenset({"_Arg", "_DeviceArg"})
_RETURNS = frozenset({"_Retval", "_DeviceRetval"})
# The first input that a functional op hands on to what it calls; 0 for the others.
_PASSED_FROM = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1}
# Rounds of inference, each of which lets at least one more variable know its shape.
_MAX_ROUNDS = 20


@dataclass(frozen=True)
class _Use:
    """An input that takes a handle. is_inner: of a node in a function that the graph calls."""

    node: Any
    place: int
    is_inner: bool


def returned_tensors(meta: Any) -> tuple[Any, list[str]]:
    """Return a copy with placeholders for a function's arguments, and the tensors it returns."""
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
        leave_lost_company(node, names)
    del copy.graph_def.node[:]
    copy.graph_def.node.extend(kept)
    return copy, [output if ":" in output else f"{output}:0" for output in outputs]


def with_variables(meta: Any, shapes: Mapping[str, Shape], what: str) -> Any:
    """Return the graph with variables for the placeholders of their handles, and initialisers.

    shapes: of variables, by node, where the graph leaves them open. The values are drawn. What an
    iterator would give is fed. A graph without such placeholders comes back as it is.

    Raises:
        BadInputError: a handle is of something else, or the shape of a variable stays open.
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
    """Return a TensorSpec for each handle, by node."""
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
            f"{what}: the graph does not tell the shapes of {len(unknown)} of {len(shapes)}"
            f" variables, where static ones were expected; that of {name!r} is {sizes}. Give them"
            f" (--feed {name}=3,3,64,64), or record the graph with"
            " tf.summary.graph(concrete_function.graph), which keeps shapes."
        )


def _uses(graph_def: Any) -> dict[str, list[_Use]]:
    """Return the inputs that take each handle, those in functions that the graph calls too."""
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
    """Yield a use, or those in the functions that its node calls with the handle."""
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
    """Return the shape that was given or that TensorFlow noted, else an open one."""
    tf = tensorflow()
    noted = attributes[HANDLE_SHAPES].list.shape if HANDLE_SHAPES in attributes else ()
    return tf.TensorShape(noted[0] if given is None and noted else given)


def _dtype(name: str, attributes: Any, uses: Sequence[_Use], what: str) -> Any:
    """Return the type of a variable, as TensorFlow noted it or by what is done with it."""
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
        f"{what}: {name!r} is a resource that {uses[0].node.name!r} ({uses[0].node.op}) takes,"
        " where a variable was expected. Record a step without it, such as a lookup table or a"
        " summary writer."
    )


def _inferred(graph_def: Any, variables: Mapping[str, Any], what: str) -> Any:
    """Return the graph with shapes inferred from what is known of the variables."""
    tf = tensorflow()
    known = type(graph_def)()
    known.CopyFrom(graph_def)
    _place_variables(known, variables)
    with tf.compat.v1.Graph().as_default() as graph:
        try:
            tf.compat.v1.import_graph_def(known, name="")
        except (ValueError, tf.errors.OpError) as error:
            raise BadInputError(
                f"{what}: TensorFlow refuses the graph ({error}); one that it can run was expected:"
                " record it again, or give the variables other shapes with --feed."
            ) from error
    return graph


def _place_variables(graph_def: Any, variables: Mapping[str, Any]) -> None:
    """Turn placeholders into variables' handles, in place."""
    for node in graph_def.node:
        if node.name in variables:
            spec = variables[node.name]
            node.op = "VarHandleOp"
            node.attr.clear()
            node.attr["dtype"].type = spec.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(spec.shape.as_proto())
            node.attr["shared_name"].s = node.name.encode()


def _shapes(uses: Sequence[_Use], graph: Any, op_defs: OpDefs) -> Iterator[Any]:
    """Yield what is known of a variable's shape from each of its uses."""
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
    """Return whether an optimiser's argument is as large as the gradient."""
    return not argument.endswith("power")


def _of_rows(shape: Any, index_rank: int | None) -> Any:
    """Return the shape of a variable from some of its rows."""
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
                f"{what}: variable {name!r} has the shape {known} in one place and {shape} in"
                " another; the same was expected: give the right one with --feed, or record again."
            ) from None
    return known
