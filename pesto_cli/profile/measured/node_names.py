"""Which op of a step a node of the run is, whatever TensorFlow made of its name."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pesto_cli.data.labels import Role
from pesto_cli.graphdef.conditionals import CALLS, FUNCTIONAL_CONTROL_FLOW
from pesto_cli.profile.source import CostRequest

# What TensorFlow adds to a graph as it runs it, and what is no op of a step: the ends of the graph,
# feeds and returns of fetches, copies of small constants on every device, what a transfer becomes.
_PLUMBING = re.compile(r"_SOURCE|_SINK|_arg_.*|_retval_.*|.*/replicate/_\d+|.*/_\d+")
# What TensorFlow puts in front where a larger function called the step, as one of Keras does.
_CALLER = re.compile(r"(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
# What inlining adds at the borders of a function: `Func/<caller>/input/_1`.
_BORDER = "Func/"
# Transposes around an op in the other layout: `conv-0-TransposeNHWCToNCHW-LayoutOptimizer`.
_LAYOUT = re.compile(r"(.+?)-(?:\d+|.*)-?Transpose\w+-LayoutOptimizer")
# What an op was rewritten to: `gradients/ArithmeticOptimizer/SimplifyAggregation_Mul_AddN` stands
# for (a part of) `gradients/AddN`.
_REWRITTEN = re.compile(r"(?P<scope>(?:.*/)?)ArithmeticOptimizer/(?P<rule>[^_/]+)_(?P<name>.+)")


@dataclass(frozen=True)
class Match:
    """What a recorded node is.

    op: index of the op, or None where no op is to carry its time (feeds, constants, transfers).
    is_within: a node of what the op calls, whose time is also in that of the op itself.
    """

    op: int | None
    is_within: bool = False


_NO_OP = Match(None)


class NodeNames:
    """The recorded names of a step's nodes."""

    def __init__(self, request: CostRequest) -> None:
        step, graph = request.step, request.step.graph
        op_of = {name: op for op, nodes in enumerate(step.nodes) for name in nodes}
        self._found = {_bare(name): Match(op) for name, op in op_of.items()}
        self._found |= {name: Match(op) for name, op in op_of.items()}
        is_feed = graph.labels.has_role(Role.FEED)
        feeds = (name for name, op in graph.index_of.items() if is_feed[op])
        self._found |= dict.fromkeys((*step.constants, *feeds), _NO_OP)
        functions = request.meta_graph.graph_def.library.function
        self._in_functions = {node.name for function in functions for node in function.node_def}
        calls = {*CALLS, *FUNCTIONAL_CONTROL_FLOW, *(f.signature.name for f in functions)}
        self._calls = {op for op, kind in enumerate(graph.types) if kind in calls}

    def find(self, name: str) -> Match | None:
        """Return what a node is; None where the graph has nothing of the kind."""
        if name in self._found:
            return self._found[name]
        bare = _bare(name)
        return self._find(name) or (self._find(bare) if bare != name else None)

    def _find(self, name: str) -> Match | None:
        if name in self._found:
            return self._found[name]
        for caller in _callers(name.removeprefix(_BORDER)):
            match = self._found.get(caller)
            if match and match.op in self._calls:
                return Match(match.op, is_within=True)
        if _PLUMBING.fullmatch(name) or name in self._in_functions:
            return _NO_OP
        return next(
            (self._found[served] for served in _served(name) if served in self._found), None
        )


def _bare(name: str) -> str:
    return _CALLER.sub("", name, count=1) if _CALLER.match(name) else name


def _callers(name: str) -> Iterator[str]:
    """Yield the nodes that could have called the function that a node is in, outermost first."""
    parts = name.split("/")
    return ("/".join(parts[:length]) for length in range(1, len(parts)))


def _served(name: str) -> Iterator[str]:
    """Yield the nodes that a node added by TensorFlow's optimisers may stand for."""
    layout = _LAYOUT.fullmatch(name)
    if layout:
        yield layout[1]
    rewritten = _REWRITTEN.fullmatch(name)
    if rewritten:
        words = rewritten["name"].split("_")
        for first in range(len(words)):
            yield rewritten["scope"] + "_".join(words[first:])
