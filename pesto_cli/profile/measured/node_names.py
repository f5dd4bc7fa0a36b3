"""Map names of recorded nodes, which TensorFlow may have changed, to the ops of a step."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pesto_cli.data.labels import Role
from pesto_cli.graphdef.conditionals import CALLS, FUNCTIONAL_CONTROL_FLOW
from pesto_cli.profile.source import CostRequest

# Nodes that TensorFlow adds when it runs a graph and that are not ops of a step: source and sink of
# the graph, feeds and fetches, copies of small constants on every device, sends and receives.
_PLUMBING = re.compile(r"_SOURCE|_SINK|_arg_.*|_retval_.*|.*/replicate/_\d+|.*/_\d+")
# Prefix of names if another function called the step, as Keras does.
_CALLER = re.compile(r"(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
# Prefix of the nodes that inlining adds for arguments and results: `Func/<caller>/input/_1`.
_BORDER = "Func/"
# Transposes around an op whose layout was changed: `conv-0-TransposeNHWCToNCHW-LayoutOptimizer`.
_LAYOUT = re.compile(r"(.+?)-(?:\d+|.*)-?Transpose\w+-LayoutOptimizer")
# A rewritten op: `gradients/ArithmeticOptimizer/SimplifyAggregation_Mul_AddN` replaces (a part of)
# `gradients/AddN`.
_REWRITTEN = re.compile(r"(?P<scope>(?:.*/)?)ArithmeticOptimizer/(?P<rule>[^_/]+)_(?P<name>.+)")


@dataclass(frozen=True)
class Match:
    """The op that a recorded node belongs to.

    op: index of the op; None if the node's time belongs to no op (feeds, constants, transfers).
    is_within: whether the node is in a function that the op calls; if the op itself was recorded,
        its time includes that of the node.
    """

    op: int | None
    is_within: bool = False


_NO_OP = Match(None)


class NodeNames:
    """Finds the op of a step by the recorded name of a node."""

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
        """Return the match of a node by its recorded name; None if the graph has no such node."""
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
    """Yield the names of all nodes that may have called the function of a node, outermost first."""
    parts = name.split("/")
    return ("/".join(parts[:length]) for length in range(1, len(parts)))


def _served(name: str) -> Iterator[str]:
    """Yield the names of the nodes that an added node of TensorFlow's optimisers may replace."""
    layout = _LAYOUT.fullmatch(name)
    if layout:
        yield layout[1]
    rewritten = _REWRITTEN.fullmatch(name)
    if rewritten:
        words = rewritten["name"].split("_")
        for first in range(len(words)):
            yield rewritten["scope"] + "_".join(words[first:])
