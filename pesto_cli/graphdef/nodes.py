"""Find the nodes of a GraphDef that one training step needs, with their inputs as indices."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.structure import cycle_text

MERGE = frozenset({"Merge", "RefMerge"})
NEXT_ITERATION = frozenset({"NextIteration", "RefNextIteration"})


@dataclass(frozen=True)
class Node:
    """One NodeDef of the step.

    inputs: (node index, output number) of every data input, in order.
    controls: node indices of the control inputs.
    """

    name: str
    type: str
    proto: Any
    inputs: tuple[tuple[int, int], ...]
    controls: tuple[int, ...]

    @cached_property
    def sources(self) -> tuple[int, ...]:
        """Indices of the nodes that are data or control inputs."""
        return (*(source for source, _ in self.inputs), *self.controls)


@dataclass(frozen=True, eq=False)
class NodeTable:
    """All NodeDefs of a graph, including those that the step does not need.

    position: node name -> index in `protos`.
    """

    protos: Sequence[Any]
    position: Mapping[str, int]

    def needed(self, targets: Iterable[str]) -> list[Node]:
        """Return the nodes that `targets` need, by data or control edges, in graph order.

        Raises:
            BadInputError: a target or an input of a needed node is not in the graph.
        """
        wired: dict[int, tuple[list[tuple[int, int]], list[int]]] = {}
        waiting = [_position(target, self.position, "is to be fetched") for target in targets]
        while waiting:
            index = waiting.pop()
            if index not in wired:
                inputs, controls = wired[index] = _wired(self.protos[index], self.position)
                waiting.extend(source for source, _ in inputs)
                waiting.extend(controls)
        number = {index: rank for rank, index in enumerate(sorted(wired))}
        return [
            Node(
                name=self.protos[index].name,
                type=self.protos[index].op,
                proto=self.protos[index],
                inputs=tuple((number[source], output) for source, output in wired[index][0]),
                controls=tuple(number[source] for source in wired[index][1]),
            )
            for index in number
        ]


def node_table(graph_def: Any) -> NodeTable:
    """Return the nodes of a GraphDef as a table.

    Raises:
        BadInputError: two nodes have the same name.
    """
    protos = list(graph_def.node)
    position = {proto.name: index for index, proto in enumerate(protos)}
    if len(position) < len(protos):
        raise BadInputError(
            f"two nodes are named {_first_repeated(protos)!r}; unique names were expected: export "
            "the graph again."
        )
    return NodeTable(protos, position)


def needed_nodes(graph_def: Any, targets: Iterable[str]) -> list[Node]:
    """Return the nodes that `targets` need, in the order of the GraphDef.

    Raises the errors of `node_table` and of `NodeTable.needed`.
    """
    return node_table(graph_def).needed(targets)


def reached(nodes: Sequence[Node], targets: Iterable[int]) -> set[int]:
    """Return the indices of `targets` and of all nodes that they need, by data or control edges."""
    found: set[int] = set()
    waiting = list(targets)
    while waiting:
        index = waiting.pop()
        if index not in found:
            found.add(index)
            waiting.extend(nodes[index].sources)
    return found


def topological_order(nodes: Sequence[Node]) -> list[int]:
    """Return node indices in topological order, without the edges from NextIteration to Merge.

    Raises:
        BadInputError: the nodes form a cycle that is not a while loop.
    """
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for index, node in enumerate(nodes):
        sources: Iterable[int] = node.sources
        if node.type in MERGE:
            sources = (source for source in sources if nodes[source].type not in NEXT_ITERATION)
        sorter.add(index, *sources)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        names = [nodes[index].name for index in error.args[1][:-1]]
        raise BadInputError(
            f"{cycle_text(names)}, where a graph without cycles, other than while loops, was "
            "expected: remove one of these edges."
        ) from None


def _wired(proto: Any, position: Mapping[str, int]) -> tuple[list[tuple[int, int]], list[int]]:
    inputs, controls = [], []
    for text in proto.input:
        if text.startswith("^"):
            controls.append(_position(text[1:], position, f"is an input of node {proto.name!r}"))
        else:
            name, _, output = text.partition(":")
            source = _position(name, position, f"is an input of node {proto.name!r}")
            number = output_number(output or "0")
            if number is None:
                raise BadInputError(
                    f"node {proto.name!r} has the input {text!r}; NODE or NODE:NUMBER was expected:"
                    " export the graph again."
                )
            inputs.append((source, number))
    return inputs, controls


def output_number(text: str) -> int | None:
    """Return the output number that a text denotes, or None; no op has more than 10^9 outputs."""
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None


def _position(name: str, position: Mapping[str, int], why: str) -> int:
    if name not in position:
        raise BadInputError(
            f"node {name!r} {why}, but is not in the graph; a complete graph was expected: export "
            "it again."
        )
    return position[name]


def _first_repeated(protos: Sequence[Any]) -> str:
    seen: set[str] = set()
    for proto in protos:
        if proto.name in seen:
            break
        seen.add(proto.name)
    name: str = proto.name
    return name
