"""Decide whether a run of a program is a training step.

A run trains if it executes an operation that changes a trainable variable

- as an optimiser does, by an op type such as `ApplyAdam` or `ResourceApplyGradientDescent`,
  wherever the gradient comes from; or
- by assigning, adding or scattering a value that depends on the variable's own value, or on data
  and a trainable variable; or by adding a value that depends on data.

Data are feeds, and the outputs of data sets, queues and readers. So these do not train: an
initialiser, whether its value is random, restored from a checkpoint, fed, or that of another
variable; a copy of one network to another; and the step counter, which is not trainable. A
functional conditional, loop or call has the types of all ops that it may execute.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pesto_cli.graphdef.programs.session_runs import SessionRun, computing, needed_operations
from pesto_cli.graphdef.tensorflow import tensorflow

OPTIMISER = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*")
ADDING = re.compile(r"Assign(Add|Sub)(VariableOp)?|(Resource)?Scatter(Nd)?(Add|Sub|Mul|Div)\w*")
ASSIGNING = re.compile(r"Assign(VariableOp)?|(Resource)?(Scatter|StridedSlice)\w+")
CHANGING = re.compile(f"{OPTIMISER.pattern}|{ADDING.pattern}|{ASSIGNING.pattern}")
READING = re.compile(r"ReadVariableOp|ResourceGather\w*")
DATA = re.compile(r"\w*(GetNext|Dequeue|Reader|PyFunc)\w*")

VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
# Ops that forward the handle or the reference in their first input.
PASSING = frozenset(
    {"Identity", "Switch", "Enter", "RefIdentity", "RefSwitch", "RefEnter", "Assign", "AssignAdd"}
)


def trains(run: SessionRun) -> bool:
    """Return whether a run is a training step."""
    return next(_updates(run), None) is not None


def training_first(run: SessionRun) -> tuple[str, ...]:
    """Return `run.names`; the names that make the run a training step come first."""
    alone = [
        *(SessionRun(run.session, [target], [], run.feeds) for target in run.targets),
        *(SessionRun(run.session, [], [fetch], run.feeds) for fetch in run.fetches),
    ]
    training = [one.names[0] for one in alone if trains(one)]
    return tuple(dict.fromkeys([*training, *run.names]))


def _updates(run: SessionRun) -> Iterator[Any]:
    """Yield the operations that make a run a training step."""
    frozen = _not_trainable(run.graph)
    for operation in needed_operations(run).values():
        changed = _variables(operation) - frozen
        if changed and _trains_one_of(operation, changed, frozen, run.feeds):
            yield operation


def _trains_one_of(
    operation: Any, variables: set[str], frozen: set[str], feeds: Mapping[Any, Any]
) -> bool:
    """Return whether an operation changes one of these variables as training does.

    variables: names of the trainable variables that it uses. frozen: names of variables that are
    not trainable. feeds: those of the run.
    """
    types = _types(operation)
    if _has(OPTIMISER, types):
        return True
    adds = _has(ADDING, types)
    if not (adds or _has(ASSIGNING, types)):
        return False
    value = [tensor for tensor in operation.inputs if _variable(tensor) is None]
    sources = computing(value, feeds).values()
    read = {name for source in sources for name in _variables(source)}
    read |= variables if _has(READING, types) else set()
    taken = [*value, *(tensor for source in sources for tensor in source.inputs)]
    data = any(tensor.ref() in feeds for tensor in taken) or _has(DATA, {s.type for s in sources})
    return bool(variables & read or (data and (adds or read - frozen)))


def _not_trainable(graph: Any) -> set[str]:
    """Return the names of the variables in the graph's collections that are not trainable."""
    tf1 = tensorflow().compat.v1
    keys = tf1.GraphKeys
    trainable = {variable.op.name for variable in graph.get_collection(keys.TRAINABLE_VARIABLES)}
    known = graph.get_collection(keys.GLOBAL_VARIABLES) + graph.get_collection(keys.LOCAL_VARIABLES)
    return {variable.op.name for variable in known} - trainable


def _variables(operation: Any) -> set[str]:
    """Return the names of the variables whose handle or reference is an input of an operation."""
    return {name for name in map(_variable, operation.inputs) if name is not None}


def _variable(tensor: Any) -> str | None:
    """Return the name of the variable whose handle or reference a tensor is, or None."""
    refers = tensor.dtype == tensorflow().resource or tensor.dtype._is_ref_dtype
    source = tensor.op
    while refers and source.type in PASSING:
        source = source.inputs[0].op
    return str(source.name) if refers and source.type in VARIABLES else None


def _types(operation: Any) -> set[str]:
    """Return the types of an operation and of all operations in functions that it may call."""
    types = {operation.type}
    waiting = list(_functions(operation.node_def)) if _calls(operation) else []
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        function = operation.graph._get_function(name)
        if name not in seen and function is not None:
            seen.add(name)
            for node in function.cached_definition.node_def:
                types.add(node.op)
                waiting += _functions(node)
    return types


def _calls(operation: Any) -> bool:
    return any(attribute.type in ("func", "list(func)") for attribute in operation.op_def.attr)


def _functions(node: Any) -> Iterator[str]:
    for attribute in node.attr.values():
        if attribute.HasField("func"):
            yield attribute.func.name
        yield from (function.name for function in attribute.list.func)


def _has(pattern: re.Pattern[str], types: set[str]) -> bool:
    return any(pattern.fullmatch(name) for name in types)
