"""Where a node has room, and the memory that it takes and frees."""

from pesto_cli.kernels import step
from pesto_cli.strategies.baechi.state import NONE, PlacerInput, PlacerState


@step
def may_go(given: PlacerInput, state: PlacerState, node: int, here: int) -> bool:
    """Whether a ready node may run on a device: affinity, its group, and memory."""
    needs, groups, room = given.needs, state.groups, state.devices.room
    group = given.graph.group[node]
    if groups.device[group] != NONE and groups.device[group] != here:
        return False
    if groups.device[group] == NONE:
        reserves = len(needs.reserve) > 0
        claim = needs.reserve[group] if reserves else needs.group_variables[group]
        if not given.graph.group_allowed[group, here] or claim > room[here]:
            return False
        if reserves:
            return True
    taken = needs.variables[node] + needs.outputs[node]
    return bool(taken <= room[here] + groups.credit[group])


@step
def roomiest(given: PlacerInput, state: PlacerState, node: int) -> int:
    """Where a node goes that fits nowhere."""
    group, room = given.graph.group[node], state.devices.room
    where: int = state.groups.device[group]
    if where == NONE:
        for here in range(len(room)):
            if given.graph.group_allowed[group, here] and (
                where == NONE or room[here] > room[where]
            ):
                where = here
    return where


@step
def pin(given: PlacerInput, state: PlacerState, node: int, here: int) -> None:
    """A node's group goes where the node does, and takes what it reserves."""
    group, reserve, groups = given.graph.group[node], given.needs.reserve, state.groups
    if groups.device[group] == NONE:
        groups.device[group] = here
        if len(reserve) > 0:
            groups.credit[group] = reserve[group]
            state.devices.room[here] -= reserve[group]


@step
def hold(given: PlacerInput, state: PlacerState, node: int) -> None:
    """A scheduled node takes its memory, and frees what it was the last to use."""
    needs, groups, room = given.needs, state.groups, state.devices.room
    group, here = given.graph.group[node], state.nodes.device[node]
    taken = needs.variables[node] + needs.outputs[node]
    from_credit = max(0.0, min(taken, groups.credit[group]))
    groups.credit[group] -= from_credit
    room[here] -= taken - from_credit
    free_inputs(given, state, node)
    groups.num_unscheduled[group] -= 1
    if groups.num_unscheduled[group] == 0:
        room[here] += groups.credit[group]
        groups.credit[group] = 0.0


@step
def free_inputs(given: PlacerInput, state: PlacerState, node: int) -> None:
    """Free outputs of sources that no other node will use."""
    inputs, num_users, previous = given.graph.inputs, state.nodes.num_users, NONE
    for entry in range(inputs.offsets[node], inputs.offsets[node + 1]):
        source = inputs.source[entry]
        if source != previous:
            num_users[source] -= 1
            if num_users[source] <= 0:
                free_outputs(given, state, source)
        previous = source


@step
def free_outputs(given: PlacerInput, state: PlacerState, node: int) -> None:
    """A node's outputs go; what its group reserved goes back to the group while it needs that."""
    needs, groups, group, back = given.needs, state.groups, given.graph.group[node], 0.0
    if len(needs.reserve) > 0 and groups.num_unscheduled[group] > 0:
        back = min(needs.outputs[node], needs.reserve[group] - groups.credit[group])
    groups.credit[group] += back
    state.devices.room[state.nodes.device[node]] += needs.outputs[node] - back
