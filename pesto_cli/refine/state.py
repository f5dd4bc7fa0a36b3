"""The state of the annealing, and the log of the changes of a move.

Moves change the state only by `put` and `shift`. Both log the previous values, so a rejected move
can be undone.
"""

from typing import NamedTuple, Self

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.kernels import kernel
from pesto_cli.refine.neighbourhood import Neighbourhood

# Rows of `State.score`.
MAKESPAN, EXCESS, TRANSFERS = 0, 1, 2
# Rows of `Change.changed`.
UNITS, OPS = 0, 1


class State(NamedTuple):
    """A placement, an order, and the score of their list schedule.

    device: device of each op, `[num_ops]`.
    offset: in us, `[num_ops]`; ops are dispatched by upward rank + offset.
    start: start of each op in us, `[num_ops]`.
    key: -(upward rank + offset), `[num_ops]`; the lowest is dispatched first. It is -inf for ops
        that run before all others.
    score: `[3]`: the makespan in us, the share by which memory is exceeded, and the total duration
        of all transfers in us.
    """

    device: IntArray
    offset: FloatArray
    start: FloatArray
    key: FloatArray
    score: FloatArray

    @classmethod
    def of(cls, num_ops: int) -> Self:
        """Return a state with all ops on device 0 and without a schedule."""
        device = np.zeros(num_ops, dtype=np.int64)
        offset, start, key = (np.zeros(num_ops) for _ in range(3))
        return cls(device, offset, start, key, np.full(3, np.inf))


class Change(NamedTuple):
    """The log of the changes of one move, and scratch arrays for the move.

    changed: the number of changed units and of changed ops, `[2]`.
    units, ops: the changed units, `[num_groups]`, and ops, `[num_ops]`, in the order of change.
    was_on: the device of each unit before the move, or -1 if unchanged, `[num_groups]`.
    was_offset: the offset of each op before the move, or NaN if unchanged, `[num_ops]`.
    chosen: scratch array, `[num_groups]`.
    seen: scratch array, `[num_groups]`, which a move must leave all False.
    """

    changed: IntArray
    units: IntArray
    ops: IntArray
    was_on: IntArray
    was_offset: FloatArray
    chosen: IntArray
    seen: BoolArray

    @classmethod
    def of(cls, num_groups: int, num_ops: int) -> Self:
        """Return an empty log."""
        return cls(
            changed=np.zeros(2, dtype=np.int64),
            units=np.zeros(num_groups, dtype=np.int64),
            ops=np.zeros(num_ops, dtype=np.int64),
            was_on=np.full(num_groups, -1, dtype=np.int64),
            was_offset=np.full(num_ops, np.nan),
            chosen=np.zeros(num_groups, dtype=np.int64),
            seen=np.zeros(num_groups, dtype=np.bool_),
        )


@kernel
def device_of(neighbourhood: Neighbourhood, state: State, unit: int) -> int:
    """Return the device of a unit."""
    return int(state.device[neighbourhood.group_ops[neighbourhood.group_offsets[unit]]])


@kernel
def put(
    neighbourhood: Neighbourhood, state: State, change: Change, units: IntArray, device: int
) -> None:
    """Move units to a device, except units that may not run on it; ignore an index out of range."""
    where, allowed = state.device, neighbourhood.allowed
    offsets, ops = neighbourhood.group_offsets, neighbourhood.group_ops
    was_on, moved, changed = change.was_on, change.units, change.changed
    num_devices = allowed.shape[1]
    for unit in units:
        here = where[ops[offsets[unit]]]
        if here == device or not (0 <= device < num_devices and allowed[unit, device]):
            continue
        if was_on[unit] < 0:
            was_on[unit] = here
            moved[changed[UNITS]] = unit
            changed[UNITS] += 1
        for entry in range(offsets[unit], offsets[unit + 1]):
            where[ops[entry]] = device


@kernel
def shift(state: State, change: Change, op: int, by_us: float) -> None:
    """Add to the offset of an op, unless the sum is not finite."""
    offset = state.offset[op] + by_us
    if not np.isfinite(offset):
        return
    if np.isnan(change.was_offset[op]):
        change.was_offset[op] = state.offset[op]
        change.ops[change.changed[OPS]] = op
        change.changed[OPS] += 1
    state.offset[op] = offset


@kernel
def has_changed(change: Change) -> bool:
    """Return whether a move has changed the state."""
    return bool(change.changed.any())


@kernel
def accept(change: Change) -> None:
    """Keep the changes, and clear the log."""
    was_on, units = change.was_on, change.units
    for row in range(change.changed[UNITS]):
        was_on[units[row]] = -1
    for row in range(change.changed[OPS]):
        change.was_offset[change.ops[row]] = np.nan
    change.changed[:] = 0


@kernel
def undo(neighbourhood: Neighbourhood, state: State, change: Change) -> None:
    """Restore the devices and offsets from before the move, and clear the log."""
    offsets, ops = neighbourhood.group_offsets, neighbourhood.group_ops
    where, was_on, units = state.device, change.was_on, change.units
    for row in range(change.changed[UNITS]):
        unit = units[row]
        for entry in range(offsets[unit], offsets[unit + 1]):
            where[ops[entry]] = was_on[unit]
    offset, was_offset, shifted = state.offset, change.was_offset, change.ops
    for row in range(change.changed[OPS]):
        offset[shifted[row]] = was_offset[shifted[row]]
    accept(change)
