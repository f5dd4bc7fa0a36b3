"""Check a GraphDef before TensorFlow imports it.

For some of these errors, TensorFlow's import would end the process or raise an unclear message.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain, count
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.printable import first_of

SHOWN_OF_A_CYCLE = 8
VARIABLE_COLLECTIONS = (
    "variables",
    "local_variables",
    "trainable_variables",
    "model_variables",
    "moving_average_variables",
    "metric_variables",
    "global_step",
)
"""Collections whose elements are VariableDefs."""
TEXTS = frozenset({"_class", "_kernel", "frame_name"})
"""Attributes of nodes that must be UTF-8 text."""
MERGES = ("Merge", "RefMerge")
NEXT_ITERATIONS = ("NextIteration", "RefNextIteration")


def check_structure(graph_def: Any, what: str) -> None:
    """Raise BadInputError when node names repeat, an input is missing or nodes form a cycle.

    Raise it also for recursive functions, which TensorFlow would inline until memory is full.
    `what` names the graph in the message. Edges from a NextIteration to a Merge do not count, so a
    v1 while loop is not a cycle.
    """
    by_name = {node.name: node for node in graph_def.node}
    if len(by_name) != len(graph_def.node):
        raise BadInputError(
            f"{what}: two nodes are named {_first_repeated(graph_def)!r}, where unique names were"
            " expected. Export the graph again."
        )
    for node in graph_def.node:
        for source in producers(node):
            if source not in by_name:
                raise BadInputError(
                    f"{what}: node {node.name!r} has the input {source!r}, which is not in the"
                    " graph. The file is incomplete: export the graph again."
                )
    cycle = find_cycle(graph_def)
    if cycle:
        raise BadInputError(
            f"{what}: {cycle_text(cycle)}, where a graph without cycles was expected."
            " Remove one of these edges."
        )
    _check_calls(graph_def.library, what)


def _check_calls(library: Any, what: str) -> None:
    calls = {
        function.signature.name: [
            name for node in function.node_def for name in called_functions(node)
        ]
        for function in library.function
    }
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        raise BadInputError(
            f"{what}: function {error.args[1][0]!r} calls itself, directly or through others; a"
            " graph without recursion was expected. Replace the recursion by a loop."
        ) from None


def called_functions(node: Any) -> Iterator[str]:
    """Yield the names of the functions that a NodeDef may call: its type and its attributes."""
    yield node.op
    for attribute in node.attr.values():
        if attribute.HasField("func"):
            yield attribute.func.name
        yield from (function.name for function in attribute.list.func)


def check_contents(meta: Any, what: str) -> None:
    """Raise BadInputError when texts or nested messages in a MetaGraphDef are damaged.

    A protocol buffer stores both as bytes fields, which are not checked when it is parsed.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    functions = (function.node_def for function in meta.graph_def.library.function)
    for node in chain(meta.graph_def.node, *functions):
        for name in TEXTS & node.attr.keys():
            try:
                for text in (node.attr[name].s, *node.attr[name].list.s):
                    text.decode()
            except UnicodeDecodeError as error:
                raise _damaged(what, f"{name} of node {node.name!r}", error) from None
    try:
        for _ in variable_defs(meta):
            pass
    except DecodeError as error:
        raise _damaged(what, "a variable", error) from None


def variable_defs(meta: Any) -> Iterator[Any]:
    """Yield the VariableDef of every variable in the collections of a MetaGraphDef."""
    from tensorflow.core.framework.variable_pb2 import VariableDef

    for key in VARIABLE_COLLECTIONS:
        if key in meta.collection_def:
            yield from map(VariableDef.FromString, meta.collection_def[key].bytes_list.value)


def _damaged(what: str, part: str, error: Exception) -> BadInputError:
    return BadInputError(
        f"{what}: {part} is damaged ({error}); a graph as TensorFlow writes it was expected."
        " Write or copy the file again."
    )


def cycle_text(names: Sequence[str]) -> str:
    """Return the text `2 nodes form a cycle (a -> b -> a)` for an error message."""
    nodes = "1 node forms" if len(names) == 1 else f"{len(names)} nodes form"
    return f"{nodes} a cycle ({first_of(names, SHOWN_OF_A_CYCLE, ' -> ')} -> {names[0]})"


def producers(node: Any) -> Iterator[str]:
    """Yield the names of the nodes that are data or control inputs of a NodeDef."""
    for name in node.input:
        yield name.lstrip("^").split(":")[0]


def ancestors(graph_def: Any, names: Iterable[str]) -> set[str]:
    """Return `names` and the names of all nodes that they need.

    Raises BadInputError when one of these nodes is not in the graph.
    """
    by_name = {node.name: node for node in graph_def.node}
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            if name not in by_name:
                raise BadInputError(
                    f"node {name!r} is needed, but not in the graph; a complete graph was expected:"
                    " export it again."
                )
            waiting.extend(producers(by_name[name]))
    return seen


def unused_name(graph_def: Any, name: str) -> str:
    """Return a name for a new node: `name`, or if it is in use `name_1`, `name_2`, ..."""
    names = {node.name for node in graph_def.node}
    numbered = chain([name], (f"{name}_{number}" for number in count(1)))
    return next(each for each in numbered if each not in names)


def drop_missing_colocation(node: Any, present: Collection[str]) -> None:
    """Remove a node's colocation constraints with nodes not in `present`, in place."""
    if "_class" in node.attr:
        companions = node.attr["_class"].list.s
        companions[:] = [c for c in companions if c.decode().removeprefix("loc:@") in present]


def find_cycle(graph_def: Any) -> list[str]:
    """Return the names along one cycle, in the direction of the edges; empty if there is none."""
    inputs = _inputs_without_loop_backs(graph_def)
    consumers: dict[str, list[str]] = {name: [] for name in inputs}
    for name, sources in inputs.items():
        for source in sources:
            consumers[source].append(name)
    missing = {name: len(sources) for name, sources in inputs.items()}
    ready = [name for name, count in missing.items() if count == 0]
    while ready:
        name = ready.pop()
        del missing[name]
        for consumer in consumers[name]:
            missing[consumer] -= 1
            if missing[consumer] == 0:
                ready.append(consumer)
    return _walk_back(inputs, missing.keys()) if missing else []


def _inputs_without_loop_backs(graph_def: Any) -> dict[str, list[str]]:
    types = {node.name: node.op for node in graph_def.node}
    return {
        node.name: [
            source
            for source in producers(node)
            if not (node.op in MERGES and types[source] in NEXT_ITERATIONS)
        ]
        for node in graph_def.node
    }


def _walk_back(inputs: dict[str, list[str]], stuck: Collection[str]) -> list[str]:
    """Return a cycle among the `stuck` nodes.

    Each of these nodes has an input among them: follow inputs until a node occurs twice.
    """
    path: dict[str, int] = {}
    name = next(iter(stuck))
    while name not in path:
        path[name] = len(path)
        name = next(source for source in inputs[name] if source in stuck)
    return list(reversed(list(path)[path[name] :]))


def _first_repeated(graph_def: Any) -> str:
    seen: set[str] = set()
    for node in graph_def.node:
        if node.name in seen:
            break
        seen.add(node.name)
    return str(node.name)
