"""Execute runs of a placed graph that are not its step, without running parts of the step.

The order of a placement is for one step. Another run (an evaluation, a summary, another training
op) that needs some ops of the step would also run all ops that are ordered before these, such as
updates of variables. So it runs copies of the ops instead: without the order, but with the same
devices and variables.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pesto_cli.graphdef.programs.session_runs import SessionRun, Waits
from pesto_cli.graphdef.tensorflow import tensorflow

SCOPE = "unordered"


def runs_more(needed: Collection[str], added: Waits) -> bool:
    """Return whether the order makes a run execute more operations.

    needed: the operations that it needs without the order. added: the order's control inputs.
    """
    return any(source not in needed for name in needed for source in added.get(name, ()))


@dataclass(frozen=True, eq=False)
class Unordered:
    """Copies of operations without the order's control inputs, by the name of the original."""

    copies: Mapping[str, Any]

    def instead_of(self, run: SessionRun) -> SessionRun:
        """Return the run of the copies that computes the same as `run`."""
        fed = {reference.deref(): value for reference, value in run.feeds.items()}
        return replace(
            run,
            targets=[self.copies.get(target.name, target) for target in run.targets],
            fetches=[
                fetch if fetch.ref() in run.feeds else self._copy(fetch) for fetch in run.fetches
            ],
            feeds={
                **run.feeds,
                **{self._copy(tensor).ref(): value for tensor, value in fed.items()},
            },
        )

    def _copy(self, tensor: Any) -> Any:
        copy = self.copies.get(tensor.op.name)
        return tensor if copy is None else copy.outputs[tensor.value_index]


def unordered(graph: Any, needed: Mapping[str, Any], added: Waits) -> Unordered:
    """Add copies of the operations of a run that the order delays to a graph, finalised or not.

    needed: the operations of the run without the order, by name. added: the order's control inputs.
    """
    copied = _downstream(needed, added)
    with _open(graph):
        return Unordered(_copies(graph, [needed[name] for name in sorted(copied)], added))


def _downstream(needed: Mapping[str, Any], added: Waits) -> set[str]:
    """Return the names of the operations that the order delays, and of all their successors."""
    takers = defaultdict(list)
    for name, operation in needed.items():
        for source in (*(tensor.op for tensor in operation.inputs), *operation.control_inputs):
            if source.name not in added.get(name, ()):
                takers[source.name].append(name)
    reached: set[str] = set()
    waiting = [name for name in needed if added.get(name)]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += takers[name]
    return reached


def _copies(graph: Any, operations: list[Any], added: Waits) -> dict[str, Any]:
    """Add a copy of every operation to its graph; return the copies by the original's name."""
    tf1 = tensorflow().compat.v1
    copied = {operation.name for operation in operations}
    body, outside = tf1.GraphDef(), {}
    for operation in operations:
        node = body.node.add()
        node.CopyFrom(operation.node_def)
        node.attr.pop("_class", None)
        kept = [source for source in operation.control_inputs if source.name in copied]
        controls = [f"^{op.name}" for op in kept if op.name not in added.get(operation.name, ())]
        node.input[:] = [name for name in node.input if not name.startswith("^")] + controls
        for tensor in operation.inputs:
            if tensor.op.name not in copied:
                outside[f"{tensor.op.name}:{tensor.value_index}"] = tensor
    with graph.as_default(), tf1.name_scope(None), graph.control_dependencies(None):
        names = [node.name for node in body.node]
        made = tf1.import_graph_def(body, outside, names, name=SCOPE)
    for operation, copy in zip(operations, made, strict=True):
        waits_for = [
            source
            for source in operation.control_inputs
            if source.name not in copied and source.name not in added.get(operation.name, ())
        ]
        copy._add_control_inputs(waits_for)
    return dict(zip(names, made, strict=True))


@contextmanager
def _open(graph: Any) -> Iterator[None]:
    """Allow operations to be added to a finalised graph within the context."""
    finalized = graph.finalized
    if finalized:
        graph._unsafe_unfinalize()
    try:
        yield
    finally:
        if finalized:
            graph.finalize()
