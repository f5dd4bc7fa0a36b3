"""Runs of a graph's own nodes, told from those of nodes in the functions that it calls.

TensorFlow records a node of a function's body by its name there, which may be that of a node of the
graph, too: `cond/Identity` is in a branch of `cond`, and takes the conditional's result. But the
body runs while an op that calls it does, and on the device of that op.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from pesto_cli.graphdef.structure import called_functions


class Recorded(NamedTuple):
    """One run of a node, of the graph or of a function; start and end on the device's clock."""

    node: str
    device: str
    start: float
    end: float


@dataclass(frozen=True)
class Bodies:
    """What functions share with the graph that calls them.

    callers: name of a node of the graph -> the graph's nodes that call a function in which a node
        has this name, too.
    """

    callers: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph_def: Any) -> Self:
        """Find the names that a GraphDef and the functions of its library share."""
        own, library = {node.name for node in graph_def.node}, _Library(graph_def.library)
        callers: dict[str, set[str]] = defaultdict(set)
        for node in graph_def.node:
            for name in library.names_within(node) & own:
                callers[name].add(node.name)
        return cls({name: frozenset(found) for name, found in callers.items()})

    def is_own(self, runs: Sequence[Recorded]) -> list[bool]:
        """For each of the runs of a step, whether it is of the graph, or of a body."""
        calling = set().union(*self.callers.values())
        calls: dict[tuple[str, str], list[Recorded]] = defaultdict(list)
        for run in runs:
            if run.node in calling:
                calls[run.node, run.device].append(run)
        return [
            not any(
                call.start <= run.start < call.end
                for caller in self.callers.get(run.node, ())
                for call in calls[caller, run.device]
            )
            for run in runs
        ]


NO_BODIES = Bodies()


class _Library:
    """The names that nodes of functions have as they run."""

    def __init__(self, library: Any) -> None:
        self._functions = {function.signature.name: function for function in library.function}
        self._names: dict[str, set[str]] = {}

    def names_within(self, node: Any) -> set[str]:
        """Return the names of the nodes in all that a NodeDef calls, directly or not."""
        called = (name for name in called_functions(node) if name in self._functions)
        return set().union(*map(self._names_of, called))

    def _names_of(self, function: str) -> set[str]:
        """What a body calls is inlined, below the name of the call, or keeps its own name."""
        if function not in self._names:
            self._names[function] = set()  # Where a function calls itself.
            names = set()
            for node in self._functions[function].node_def:
                within = self.names_within(node)
                names |= {node.name, *within, *(f"{node.name}/{name}" for name in within)}
            self._names[function] = names
        return self._names[function]
