"""Runs of a placed graph that are not its step, kept from running half of it.

The order of a placement is that of one step. Another run (an evaluation, a summary, another
training op) that needs some ops of the step would have to run all that is ordered before these,
updates of variables too. It runs copies of them instead, without the order, on the same devices
and the same variables.
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
    """Whether these operations of a run wait for others that it would not run without the order."""
    return any(source not in needed for name in needed for source in added.get(name, ()))


@dataclass(frozen=True, eq=False)
class Unordered:
    """Copies of operations, by the name of the original, that wait only for what they need."""

    copies: Mapping[str, Any]

    def instead_of(self, run: SessionRun) -> SessionRun:
        """Return the run of the copies that gives what `run` asks for."""
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
    """Add to a graph, finalised or not, copies of what the order holds back in a run.

    needed: the operations of the run without the order, by name. added: the order's control inputs.
    """
    copied = _downstream(needed, added)
    with _open(graph):
        return Unordered(_copies(graph, [needed[name] for name in sorted(copied)], added))


def _downstream(needed: Mapping[str, Any], added: Waits) -> set[str]:
    """Names of the operations that the order holds back, and of all that takes from these."""
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
    """Add a copy of every operation to its graph, and return it by the original's name."""
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
    """Let a finalised graph grow once more."""
    finalized = graph.finalized
    if finalized:
        graph._unsafe_unfinalize()
    try:
        yield
    finally:
        if finalized:
            graph.finalize()
