"""Labels derived from the types and names of TensorFlow's ops, for graphs and for old profiles.

TensorFlow's names of gradients and updates contain the name of the forward op:

    layer_0/step_3/MatMul                           a forward op
    gradients/layer_0/step_3/MatMul_grad/MatMul_1   its gradient; `gradient_tape/...` in eager code
    train/update_layer_0/kernel/ResourceApplyAdam   the update of a variable of `layer_0`

Profiles of version 1 have no labels. They are derived by the same rules as for a GraphDef.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import BoolArray, IntArray, OpGraph
from pesto_cli.data.labels import Compound, Labels, Phase, Role

FEED_TYPES = frozenset({"Placeholder", "PlaceholderV2", "_Arg"})
FETCH_TYPES = frozenset({"_Retval"})
VARIABLE_TYPES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
LOOPS = frozenset({"While", "StatelessWhile"})
CONDITIONALS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

_ROLES: Mapping[str, Role] = {
    **dict.fromkeys(FEED_TYPES, Role.FEED),
    **dict.fromkeys(FETCH_TYPES, Role.FETCH),
    **dict.fromkeys(VARIABLE_TYPES, Role.VARIABLE),
}
_COMPOUNDS: Mapping[str, Compound] = {
    **dict.fromkeys(LOOPS, Compound.LOOP),
    **dict.fromkeys(CONDITIONALS, Compound.CONDITIONAL),
    **dict.fromkeys(CALLS, Compound.CALL),
}
_UPDATES = re.compile(
    r"(Resource)?(Sparse)?Apply[A-Z]\w*|Assign(Add|Sub)?(Variable)?(Op)?"
    r"|(Resource)?Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)|(Resource)?StridedSliceAssign"
)
_GRADIENTS = re.compile(r"gradient(s|_tape)(_\d+)?")
_GRADIENT_OF = re.compile(r"_grad(_\d+)?$")
_UPDATE_OF = "update_"  # prefix that v1 optimisers put before a variable's name
_TIME = re.compile(r"(time_?step|step|time|t)_?\d+")


def labelled(graph: OpGraph) -> OpGraph:
    """Return the graph with the labels that follow from its types and names, and no others."""
    scopes = _scopes_of(graph.names)
    phase = _behind_gradients(graph, [scope.phase for scope in scopes])
    return graph.labelled(
        Labels(
            role=_by_type(graph.types, {kind: _role(kind) for kind in set(graph.types)}),
            phase=phase,
            compound=_by_type(graph.types, _COMPOUNDS),
            forward_op=_forward_ops(graph, phase),
            scope=tuple(scope.scope for scope in scopes),
            repetition=tuple(scope.repetition for scope in scopes),
        )
    )


def _role(op_type: str) -> Role:
    is_update = _UPDATES.fullmatch(op_type) is not None
    return Role.UPDATE if is_update else _ROLES.get(op_type, Role.COMPUTE)


def _by_type(types: Sequence[str], number: Mapping[str, int]) -> IntArray:
    return np.array([number.get(kind, 0) for kind in types], dtype=np.int64)


@dataclass(frozen=True)
class _Scope:
    """The labels that follow from the scopes in an op's name; see `Labels`."""

    phase: Phase
    scope: str | None
    repetition: str | None


def _scopes_of(names: Sequence[str]) -> list[_Scope]:
    roots = {name.partition("/")[0] for name in names}
    outer = [name.rpartition("/")[0] for name in names]
    found = {text: _scope(text.split("/"), roots) for text in set(outer)}
    return [found[text] for text in outer]


def _scope(scopes: Sequence[str], roots: Set[str]) -> _Scope:
    """Return the labels of an op with these scopes.

    The scopes after the last scope of gradients or of an update are scopes of the model.
    `layer_0/update_gate` is no update if the model has no outermost scope `gate`.
    """
    phase, inner = Phase.FORWARD, None
    for place, scope in enumerate(scopes):
        if _GRADIENTS.fullmatch(scope):
            phase, inner = Phase.BACKWARD, scopes[place + 1 :]
        elif scope.startswith(_UPDATE_OF) and scope.removeprefix(_UPDATE_OF) in roots:
            phase = phase or Phase.UPDATE
            inner = [scope.removeprefix(_UPDATE_OF), *scopes[place + 1 :]]
    repeated = [each for each in (scopes if inner is None else inner) if _TIME.fullmatch(each)]
    return _Scope(
        phase, None if inner is None else "/".join(inner), "/".join(repeated) if repeated else None
    )


def _behind_gradients(graph: OpGraph, by_name: Sequence[Phase]) -> IntArray:
    """Return the phase of each op, `[num_ops]`; other ops after a gradient belong to the update."""
    phase = np.array(by_name, dtype=np.int64)
    waiting = np.flatnonzero(phase == Phase.BACKWARD).tolist()
    offsets, heads = graph.successors.offsets.tolist(), graph.successors.indices.tolist()
    seen = set(waiting)
    while waiting:
        op = waiting.pop()
        for head in heads[offsets[op] : offsets[op + 1]]:
            if head not in seen:
                seen.add(head)
                waiting.append(head)
                phase[head] = Phase.UPDATE
    return phase


def _forward_ops(graph: OpGraph, phase: IntArray) -> tuple[str | None, ...]:
    """Return the name of each gradient op's forward op, `[num_ops]`; None where there is none."""
    found: list[str | None] = [None] * graph.num_ops
    is_forward = phase == Phase.FORWARD
    for op in np.flatnonzero(phase == Phase.BACKWARD).tolist():
        scopes = graph.names[op].split("/")
        first = next(place for place, scope in enumerate(scopes) if _GRADIENTS.fullmatch(scope))
        found[op] = _named_after(graph, is_forward, scopes[first + 1 :])
    return tuple(found)


def _named_after(graph: OpGraph, is_forward: BoolArray, path: Sequence[str]) -> str | None:
    """Return the forward op whose name is the longest prefix of a gradient's path, or None."""
    for end in range(len(path), 0, -1):
        name = "/".join(path[:end])
        for candidate in (name, _GRADIENT_OF.sub("", name)):
            op = graph.index_of.get(candidate, -1)
            if op >= 0 and is_forward[op]:
                return candidate
    return None
