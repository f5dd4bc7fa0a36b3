"""The state that is annealed, and the log of what a move has changed in it.

Moves change the state by `put` and `shift` alone. Both note what was before, so that a move that is
rejected can be undone.
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
    """A placement, an order, and what its list schedule is worth.

    device: `[num_ops]`.
    offset: `[num_ops]`, in us; ops are dispatched by upward rank + offset.
    start: `[num_ops]`, when each op starts, in us.
    key: `[num_ops]`, -(upward rank + offset), lowest first; -inf for ops that go before all.
    score: `[3]`, the makespan in us, the share by which memory is exceeded, and how long all
        transfers take together in us.
    """

    device: IntArray
    offset: FloatArray
    start: FloatArray
    key: FloatArray
    score: FloatArray

    @classmethod
    def of(cls, num_ops: int) -> Self:
        """All ops on device 0, not scheduled yet."""
        device = np.zeros(num_ops, dtype=np.int64)
        offset, start, key = (np.zeros(num_ops) for _ in range(3))
        return cls(device, offset, start, key, np.full(3, np.inf))


class Change(NamedTuple):
    """What one move has changed so far, and memory that it may use.

    changed: `[2]`, how many units and ops have.
    units, ops: `[num_groups]` and `[num_ops]`, which have, in the order of their change.
    was_on: `[num_groups]`, the device of each unit before the move; -1 if it has not changed.
    was_offset: `[num_ops]`, likewise; NaN if it has not changed.
    chosen: `[num_groups]`, for any use by a move.
    seen: `[num_groups]`, likewise, but False between moves.
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
        """Nothing has changed."""
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
    """Where a unit is."""
    return int(state.device[neighbourhood.group_ops[neighbourhood.group_offsets[unit]]])


@kernel
def put(
    neighbourhood: Neighbourhood, state: State, change: Change, units: IntArray, device: int
) -> None:
    """Move units to a device: those that are not there and may go there, if there is such one."""
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
    """Whether a move has changed anything."""
    return bool(change.changed.any())


@kernel
def accept(change: Change) -> None:
    """Keep what has changed: the log is empty again."""
    was_on, units = change.was_on, change.units
    for row in range(change.changed[UNITS]):
        was_on[units[row]] = -1
    for row in range(change.changed[OPS]):
        change.was_offset[change.ops[row]] = np.nan
    change.changed[:] = 0


@kernel
def undo(neighbourhood: Neighbourhood, state: State, change: Change) -> None:
    """Restore devices and offsets as they were before the move; the log is empty again."""
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
