"""Nodes outside the step that take the handle of a variable: initialisers, savers, evaluations.

If the variable is split or mirrored, these nodes are rewritten for its pieces or copies. This is
possible for the ops in `ACCESSES`, and for those in `PASSES`. If another op takes the handle, the
variable must stay whole.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.graphdef.nodes import Node
from pesto_cli.graphdef.wiring import Wiring

HANDLE = "VarHandleOp"
WRITES = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
SHAPE = "VariableShape"
ACCESSES = WRITES | {
    *("ReadVariableOp", "ResourceGather", "VarIsInitializedOp", SHAPE),
    *("DestroyResourceOp", "DisableCopyOnRead"),
}
UNSHARED = ("", "cd2c89b7-88b7-44c8-ad83-06c2a9158347")
"""Values of `shared_name` of handles that share nothing; the second one is what TensorFlow 2 sets
(tensorflow/core/framework/resource_handle.h)."""
PASSES = {"Identity": 1, "Switch": 2}
"""Ops that pass a handle on, with the number of their outputs. A Switch is in a conditional."""


@dataclass(frozen=True)
class Access:
    """A node outside the step that takes the handle of a variable.

    place: the input that is the handle. handle: the tensor there; the name of the variable, unless
        an op of `PASSES` is between them. variable: the name of its VarHandleOp.
    """

    node: Any
    place: int
    handle: str
    variable: str

    @property
    def can_be_split(self) -> bool:
        """Return whether the node can be rewritten for the pieces of the variable.

        The shape of a variable becomes a constant, which would also be computed in a branch of a
        conditional that is not taken.
        """
        is_passed_on = self.handle != self.variable
        is_known = self.node.op in ACCESSES or self.node.op in PASSES
        return self.place == 0 and is_known and not (is_passed_on and self.node.op == SHAPE)


def accesses(nodes: Iterable[Any], variables: Iterable[str]) -> Iterator[Access]:
    """Yield the accesses of nodes to variables; the one that passes on a handle comes first.

    nodes: the NodeDefs outside the step.
    """
    takers: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    for node in nodes:
        for place, source in enumerate(node.input):
            takers[source.removesuffix(":0")].append((node, place))
    waiting = [(name, name) for name in variables]
    while waiting:
        handle, variable = waiting.pop()
        for node, place in takers.get(handle, ()):
            yield Access(node, place, handle, variable)
            waiting += [
                (f"{node.name}:{output}" if output else node.name, variable)
                for output in range(PASSES.get(node.op, 0))
            ]


def variable_of(handle: Any) -> tuple[str, str]:
    """Return the container and the name of the variable of a VarHandleOp, which others may share.

    handle: a NodeDef.
    """
    # Reading an attribute that a node lacks would add it to the node.
    container, shared = (
        handle.attr[name].s.decode() if name in handle.attr else ""
        for name in ("container", "shared_name")
    )
    return container, handle.name if shared in UNSHARED else shared


def first_handles(nodes: Sequence[Node]) -> dict[int, int]:
    """Return {VarHandleOp: the first VarHandleOp of the same variable}, as indices of nodes."""
    first: dict[tuple[str, str], int] = {}
    return {
        index: first.setdefault(variable_of(node.proto), index)
        for index, node in enumerate(nodes)
        if node.type == HANDLE
    }


def devices_of_other_handles(wiring: Wiring, device: Mapping[str, str]) -> dict[str, str]:
    """Return the devices of the VarHandleOps outside a step that refer to variables of the step.

    They refer to the same variable only if they are on the same device.

    device: node of the step -> its device.
    """
    handles = [proto for proto in wiring.table.protos if proto.op == HANDLE]
    known = {variable_of(each): device[each.name] for each in handles if each.name in device}
    return {
        each.name: known[variable_of(each)]
        for each in handles
        if each.name not in device and variable_of(each) in known
    }


def variables_taken_whole(wiring: Wiring) -> frozenset[str]:
    """Return the variables of a step that must stay whole because of a node outside the step.

    A variable with several handles stays whole, too: a node may take it by another handle.
    """
    step = {node.name for node in wiring.nodes}
    variables = [node.name for node in wiring.nodes if node.type == HANDLE]
    outside = [proto for proto in wiring.table.protos if proto.name not in step]
    found = accesses(outside, variables)
    whole = {access.variable for access in found if not access.can_be_split}
    handles = [proto for proto in wiring.table.protos if proto.op == HANDLE]
    count = Counter(map(variable_of, handles))
    return frozenset(whole | {each.name for each in handles if count[variable_of(each)] > 1})
