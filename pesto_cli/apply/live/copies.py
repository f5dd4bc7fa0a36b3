"""Copies of a graph's operations, and runs that use the copies instead of the originals."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pesto_cli.graphdef.programs.session_runs import SessionRun, Waits
from pesto_cli.graphdef.tensorflow import tensorflow

ADDED = "_added_by_pesto"
"""Attribute of operations that are not the program's own."""


@dataclass(frozen=True, eq=False)
class Copies:
    """Operations that compute the same as others, by the name of the original."""

    copies: Mapping[str, Any]

    def instead_of(self, run: SessionRun) -> SessionRun:
        """Return the run of the copies that computes the same as `run`."""
        if not self.copies:
            return run
        fed = {reference.deref(): value for reference, value in run.feeds.items()}
        return replace(
            run,
            targets=[self.copies.get(target.name, target) for target in run.targets],
            fetches=[
                fetch if fetch.ref() in run.feeds else self.tensor(fetch) for fetch in run.fetches
            ],
            feeds={
                **run.feeds,
                **{self.tensor(tensor).ref(): value for tensor, value in fed.items()},
            },
        )

    def tensor(self, original: Any) -> Any:
        """Return the tensor of a copy that stands for a tensor; the tensor itself without one."""
        copy = self.copies.get(original.op.name)
        return original if copy is None else copy.outputs[original.value_index]


NO_COPIES = Copies({})


def add_copies(
    graph: Any,
    operations: Sequence[Any],
    scope: str,
    known: Copies = NO_COPIES,
    without: Waits = MappingProxyType({}),
) -> dict[str, Any]:
    """Add a copy of every operation to a graph, finalised or not, on the same device.

    Copies take tensors of each other and of `known` copies in place of those of the originals.

    scope: a name scope for the copies. without: control inputs that the copies do not get, by the
        name of the original.

    Returns the copies by the name of the original.
    """
    if not operations:
        return {}
    copied = {operation.name for operation in operations}
    nodes, outside = [operation.node_def for operation in operations], {}
    for node, operation in zip(nodes, operations, strict=True):
        kept = [source for source in operation.control_inputs if source.name in copied]
        controls = [f"^{op.name}" for op in kept if op.name not in without.get(operation.name, ())]
        node.input[:] = [name for name in node.input if not name.startswith("^")] + controls
        for tensor in operation.inputs:
            if tensor.op.name not in copied:
                outside[f"{tensor.op.name}:{tensor.value_index}"] = known.tensor(tensor)
    added = add_nodes(graph, nodes, outside, scope)
    for operation in operations:
        waits_for = [
            known.copies.get(source.name, source)
            for source in operation.control_inputs
            if source.name not in copied and source.name not in without.get(operation.name, ())
        ]
        added[operation.name]._add_control_inputs(waits_for)
    return added


def add_nodes(
    graph: Any, nodes: Sequence[Any], outside: Mapping[str, Any], scope: str, library: Any = None
) -> dict[str, Any]:
    """Add NodeDefs to a graph, finalised or not; return the operations by name of the node.

    outside: the tensors that the nodes take from the graph, by their name in the nodes, such as
        `a:0`; and for `^a` a tensor of the operation that they wait for. scope: a name scope for
        the operations. library: a FunctionDefLibrary; functions that the graph has are not added.
    """
    tf = tensorflow()
    body = tf.compat.v1.GraphDef()
    body.versions.producer = tf.version.GRAPH_DEF_VERSION
    body.node.extend(nodes)
    for node in body.node:
        node.attr.pop("_class", None)
        node.attr[ADDED].b = True
    if library is not None:
        known = {each.signature.name for each in graph.as_graph_def().library.function}
        new = [each for each in library.function if each.signature.name not in known]
        body.library.function.extend(new)
    names = [node.name for node in body.node]
    with opened(graph):
        made = tf.import_graph_def(body, dict(outside), names, name=scope)
    return dict(zip(names, made, strict=True))


def add_no_ops(graph: Any, devices: Mapping[str, str]) -> None:
    """Add NoOps to a graph. devices: name -> TensorFlow device."""
    tf1 = tensorflow().compat.v1
    add_nodes(
        graph, [tf1.NodeDef(name=name, op="NoOp", device=devices[name]) for name in devices], {}, ""
    )


def downstream(
    needed: Mapping[str, Any], first: Iterable[str], without: Waits = MappingProxyType({})
) -> set[str]:
    """Return the names of some operations of a run, and of all that depend on them.

    needed: the operations of the run, by name. without: control inputs to ignore.
    """
    takers = defaultdict(list)
    for name, operation in needed.items():
        for source in (*(tensor.op for tensor in operation.inputs), *operation.control_inputs):
            if source.name not in without.get(name, ()):
                takers[source.name].append(name)
    reached: set[str] = set()
    waiting = [*first]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += takers[name]
    return reached


@contextmanager
def opened(graph: Any) -> Iterator[None]:
    """Allow operations to be added to a graph, finalised or not, within the context.

    No scope, device or control input of the program applies to them.
    """
    tf1, finalized = tensorflow().compat.v1, graph.finalized
    if finalized:
        graph._unsafe_unfinalize()
    try:
        with (
            graph.as_default(),
            tf1.name_scope(None),
            tf1.device(None),
            graph.control_dependencies(None),
        ):
            yield
    finally:
        if finalized:
            graph.finalize()
