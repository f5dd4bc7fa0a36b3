"""Check whether a step can run without the program that built it.

Raise an error for inputs that no session can feed, and for steps of several replicas. Log a warning
for ops that run only within the program.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.devices import DT_RESOURCE, DT_VARIANT
from pesto_cli.graphdef.structure import called_functions
from pesto_cli.printable import logger

CALLS_PYTHON = re.compile(r"PyFunc(Stateless)?|EagerPyFunc")
DEQUEUES = re.compile(r"QueueDequeue\w*")
# Ops that call functions of the program, wait for its threads, or use the handle of an iterator in
# its session.
OF_THE_PROGRAM = re.compile(
    rf"{CALLS_PYTHON.pattern}|{DEQUEUES.pattern}|IteratorFromStringHandle\w*"
)
COLLECTIVE = re.compile(r"Collective\w+")
REPLICA = re.compile(r".+/replica_\d+")
"""Names of the variables that a tf.distribute strategy creates for all replicas but the first."""

log = logger(__name__)


def require_feedable(fed: Sequence[Any], what: str) -> None:
    """Raise BadInputError when a placeholder is for a resource, such as an iterator."""
    for node in fed:
        if node.attr["dtype"].type in (DT_RESOURCE, DT_VARIANT):
            raise BadInputError(
                f"{what}: input {node.name!r} is a resource of the program that built the graph,"
                " such as an iterator, which cannot be fed; tensors were expected. For an iterator,"
                " call next(iterator) outside of the step and pass the batch to the step. For"
                " variables and tables, save the model with tf.saved_model.save and export that."
            )


def require_one_replica(names: Iterable[str], what: str) -> None:
    """Raise BadInputError when names of variables, or types of ops, show several replicas."""
    for name in names:
        if REPLICA.fullmatch(name) or COLLECTIVE.fullmatch(name):
            raise built_for_replicas(what, name)


def built_for_replicas(what: str, found: str) -> BadInputError:
    """Return the error for a step of several replicas; `found` is the evidence."""
    return BadInputError(
        f"{what}: built for tf.distribute with several replicas ({found}), where the step of one"
        " was expected. Export one replica: build the model and its step without the strategy."
    )


def check_self_contained(step: Sequence[Any], library: Any, what: str) -> None:
    """Raise BadInputError for a step of several replicas; warn of ops that need the program.

    step: the NodeDefs of the step. library: the function library of its graph.
    """
    found = executed(step, library)
    require_one_replica([*found, *found.get("VarHandleOp", ())], what)
    for op_type, names in found.items():
        if OF_THE_PROGRAM.fullmatch(op_type):
            others = f", as do {len(names) - 1} other ops of its type" if len(names) > 1 else ""
            log.warning(
                "%s: %r (%s) needs the running program%s. The graph can be profiled by the analytic"
                " model and placed, but it runs only within the program.",
                what,
                names[0],
                op_type,
                others,
            )


def require_no_python(step: Sequence[Any], library: Any, what: str) -> None:
    """Raise BadInputError when a saved step calls Python: a SavedModel has no Python code."""
    for op_type, names in executed(step, library).items():
        if CALLS_PYTHON.fullmatch(op_type):
            raise BadInputError(
                f"{what}: {names[0]!r} ({op_type}) calls a Python function of the program that"
                " saved the model, where TensorFlow's own ops were expected. Use these in place of"
                " tf.py_function and tf.numpy_function, or move the call out of the step."
            )


def executed(step: Sequence[Any], library: Any) -> dict[str, list[str]]:
    """Return {type: node names} for the types of all ops that a step may execute.

    For an op inside a function, the names are those of the step's nodes that may call the function.
    """
    functions = {function.signature.name: function for function in library.function}
    found: dict[str, list[str]] = defaultdict(list)
    for node in step:
        for op_type in dict.fromkeys(_types(node, functions)):
            found[op_type].append(node.name)
    return dict(found)


def _types(node: Any, functions: dict[str, Any]) -> Iterator[str]:
    """Yield the type of a node and the types of all nodes in the functions that it may call."""
    yield node.op
    if not functions:
        return
    seen: set[str] = set()
    waiting = [name for name in called_functions(node) if name in functions]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            for inner in functions[name].node_def:
                yield inner.op
                waiting += [called for called in called_functions(inner) if called in functions]
