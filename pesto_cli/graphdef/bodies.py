"""Separate the recorded runs of a graph's own nodes from those of nodes in called functions.

TensorFlow records a node of a function's body under its name in the body. A node of the graph may
have the same name: `cond/Identity` can be a node in a branch of `cond`, and a node of the graph
that reads the conditional's result. Time and device tell the two apart: the body runs while the op
that calls it runs, and on the device of that op.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from pesto_cli.graphdef.structure import called_functions


class Recorded(NamedTuple):
    """One run of a node of the graph or of a function; start and end by the device's clock."""

    node: str
    device: str
    start: float
    end: float


@dataclass(frozen=True)
class Bodies:
    """The node names that occur both in the graph and in the functions that it calls.

    callers: shared name -> the nodes of the graph that call, directly or not, a function with a
        node of this name.
    """

    callers: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph_def: Any) -> Self:
        """Find the names that occur both in a GraphDef and in the functions that it calls."""
        own, library = {node.name for node in graph_def.node}, _Library(graph_def.library)
        callers: dict[str, set[str]] = defaultdict(set)
        for node in graph_def.node:
            for name in library.names_within(node) & own:
                callers[name].add(node.name)
        return cls({name: frozenset(found) for name, found in callers.items()})

    def is_own(self, runs: Sequence[Recorded]) -> list[bool]:
        """Return for each run of a step whether its node is the graph's own, not of a function."""
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
    """The names under which the nodes of functions are recorded when they run."""

    def __init__(self, library: Any) -> None:
        self._functions = {function.signature.name: function for function in library.function}
        self._names: dict[str, set[str]] = {}

    def names_within(self, node: Any) -> set[str]:
        """Return the names of the nodes in all functions that a NodeDef calls, directly or not."""
        called = (name for name in called_functions(node) if name in self._functions)
        return set().union(*map(self._names_of, called))

    def _names_of(self, function: str) -> set[str]:
        """Return the names of the nodes in a function and in the functions that it calls.

        TensorFlow may inline a called function, with the name of the call as prefix, or may not.
        Both names of its nodes are returned.
        """
        if function not in self._names:
            self._names[function] = set()  # Ends the recursion if a function calls itself.
            names = set()
            for node in self._functions[function].node_def:
                within = self.names_within(node)
                names |= {node.name, *within, *(f"{node.name}/{name}" for name in within)}
            self._names[function] = names
        return self._names[function]
