"""Find the variables and other state that the nodes of a step read and write."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pesto_cli.graphdef.devices import DT_RESOURCE
from pesto_cli.graphdef.fetches import SHAPED_TYPES
from pesto_cli.graphdef.outside_step import variable_of
from pesto_cli.graphdef.signature import Argument, values
from pesto_cli.graphdef.wiring import Wiring

READS = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"}
)
"""Ops without side effects whose outputs depend only on their inputs and a variable's value."""
VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
PASSING = frozenset({"Identity", "Switch", "Enter"})
"""Ops that forward the handle in their first input."""
READ_ONLY = "_read_only_resource_inputs"
"""Attribute of calls, loops and conditionals: the inputs that their functions only read."""

State = tuple[str, str]
"""Identifies state: (container, name) of a variable, as in TensorFlow, or (type, name) of the node
that creates other state."""
OUTSIDE: State = ("", "")
"""State that an op without handles may change: files, printed output, random generators."""


@dataclass(frozen=True)
class Uses:
    """The indices of the nodes that use one piece of state, and of those that may change it."""

    users: Sequence[int]
    writers: Sequence[int]


def states(wiring: Wiring) -> list[State | None]:
    """`[num_nodes]`: the state whose handle or reference a node outputs; None if unknown."""
    found: list[State | None] = [None] * len(wiring.nodes)
    for index in wiring.order:
        node, takes = wiring.nodes[index], wiring.signature(index).inputs
        if node.type in VARIABLES:
            found[index] = variable_of(node.proto)
        elif takes and (takes[0].is_ref or (node.type in PASSING and _holds(takes[0]))):
            found[index] = found[node.inputs[0][0]]
        elif not any(map(_holds, takes)) and node.type not in SHAPED_TYPES:
            found[index] = (node.type, node.name)
    return found


def uses(wiring: Wiring, state_of: Sequence[State | None]) -> Mapping[State, Uses]:
    """Return the uses of each piece of state.

    A node uses the state whose handle is its input; a node with a handle of unknown state uses all
    state. It counts as a writer, unless it is known that it only reads.
    """
    users: dict[State, list[int]] = defaultdict(list)
    writers: dict[State, list[int]] = defaultdict(list)
    anywhere: list[int] = []
    for index in range(len(wiring.nodes)):
        for state, writes in _used(wiring, index, state_of):
            if state is None:
                anywhere.append(index)
            else:
                users[state].append(index)
                writers[state] += [index] if writes else []
    return {state: Uses(users[state] + anywhere, writers[state] + anywhere) for state in users}


def _holds(tensor: Argument) -> bool:
    return tensor.is_ref or tensor.dtype == DT_RESOURCE


def _used(
    wiring: Wiring, index: int, state_of: Sequence[State | None]
) -> list[tuple[State | None, bool]]:
    """Return the state that a node uses (None if unknown), each with whether it may change it."""
    node, signature = wiring.nodes[index], wiring.signature(index)
    if node.type in PASSING and _holds(signature.outputs[0]):
        return []
    only_read = values(node.proto.attr.get(READ_ONLY)) or ()
    used = []
    for place, (source, number) in enumerate(node.inputs):
        if _holds(wiring.signature(source).outputs[number]):
            may_write = node.type not in READS and place not in only_read
            used.append((state_of[source], may_write and _holds(signature.inputs[place])))
    makes_state = any(map(_holds, signature.outputs))
    if not (used or makes_state) and wiring.op_defs.of(node.proto).is_stateful:
        used.append((OUTSIDE, True))
    return used
