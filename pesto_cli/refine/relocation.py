"""Common parts of moves that change devices: the choice of units and targets, and followers.

In half of the moves, neighbours of the moved units follow to the target device. A neighbour follows
if it exchanges more with units on the target device than with units on its own device. This
resembles the moves by gain in Fiduccia and Mattheyses (1982). Without followers, a moved group has
many edges to the units around it.
"""

from pesto_cli.data.graph import IntArray
from pesto_cli.kernels import kernel
from pesto_cli.refine.draws import Random, below, draw, uniform
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.state import UNITS, Change, State, device_of, put

# The share of moves with followers, and the approximate largest number of followers.
FOLLOWED = 0.5
MOST_FOLLOWERS = 50
# Any allowed device.
ANY = -1


@kernel
def choose_group(neighbourhood: Neighbourhood, random: Random, change: Change) -> int:
    """Write the units of a random group of a random family to `change.chosen`; return how many."""
    family = draw(random, neighbourhood.family_chances)
    first, end = neighbourhood.family_offsets[family], neighbourhood.family_offsets[family + 1]
    group = first + below(random, end - first)
    row, end = neighbourhood.member_offsets[group], neighbourhood.member_offsets[group + 1]
    change.chosen[: end - row] = neighbourhood.members[row:end]
    return int(end - row)


@kernel
def any_neighbour(neighbourhood: Neighbourhood, random: Random, unit: int) -> int:
    """Return a random neighbour of a unit, or -1 if there is none."""
    first, end = neighbourhood.near_offsets[unit], neighbourhood.near_offsets[unit + 1]
    if first == end:
        return -1
    return int(neighbourhood.near[first + below(random, end - first)])


@kernel
def other_device(neighbourhood: Neighbourhood, state: State, random: Random, unit: int) -> int:
    """Return a random allowed device of a unit other than its own, or -1 if there is none."""
    here, target, count = device_of(neighbourhood, state, unit), -1, 0
    for there in range(neighbourhood.allowed.shape[1]):
        if there != here and neighbourhood.allowed[unit, there]:
            count += 1
            if below(random, count) == 0:
                target = there
    return target


@kernel
def relocate_chosen(
    neighbourhood: Neighbourhood,
    state: State,
    random: Random,
    change: Change,
    num_chosen: int,
    wanted: int = ANY,
) -> None:
    """Move the first `num_chosen` of the chosen units to a device; neighbours may follow.

    The device is `wanted`, if it is allowed for one of the units, drawn at random; otherwise it is
    a random one that is. Units that may not run there stay.
    """
    lead = change.chosen[below(random, num_chosen)]
    here = device_of(neighbourhood, state, lead)
    there = other_device(neighbourhood, state, random, lead)
    if wanted != ANY and neighbourhood.allowed[lead, wanted]:
        there = wanted
    put(neighbourhood, state, change, change.chosen[:num_chosen], there)
    if uniform(random) < FOLLOWED:
        _follow(neighbourhood, state, change, here, there)


@kernel
def _follow(
    neighbourhood: Neighbourhood, state: State, change: Change, here: int, there: int
) -> None:
    """Move neighbours of moved units too, if their pull is positive, and then their neighbours."""
    device, ops, first_op = state.device, neighbourhood.group_ops, neighbourhood.group_offsets
    near, offsets = neighbourhood.near, neighbourhood.near_offsets
    allowed, changed, moved = neighbourhood.allowed, change.changed, change.units
    most, row = changed[UNITS] + MOST_FOLLOWERS, 0
    while row < changed[UNITS] and changed[UNITS] <= most:
        for place in range(offsets[moved[row]], offsets[moved[row] + 1]):
            unit = near[place]
            if device[ops[first_op[unit]]] != here or not allowed[unit, there]:
                continue
            if _pull_us(neighbourhood, device, unit, there) > 0.0:
                put(neighbourhood, state, change, near[place : place + 1], there)
        row += 1


@kernel
def _pull_us(neighbourhood: Neighbourhood, device: IntArray, unit: int, there: int) -> float:
    """Return the transfer time of a unit's tensors with `there`, minus that with its own device.

    Both are sums in us over the tensors that the unit exchanges with units on that device.

    Tensors with neighbours on both devices count, as if each of them were sent.
    """
    ops, first_op = neighbourhood.group_ops, neighbourhood.group_offsets
    near, offsets = neighbourhood.near, neighbourhood.near_offsets
    tensors, num_bytes = neighbourhood.near_tensors, neighbourhood.near_bytes
    here, pull_us = device[ops[first_op[unit]]], 0.0
    latency_us = neighbourhood.latency_us[here, there]
    us_per_byte = neighbourhood.us_per_byte[here, there]
    for row in range(offsets[unit], offsets[unit + 1]):
        where = device[ops[first_op[near[row]]]]
        us = tensors[row] * latency_us + num_bytes[row] * us_per_byte
        if where == there:
            pull_us += us
        elif where == here:
            pull_us -= us
    return pull_us
