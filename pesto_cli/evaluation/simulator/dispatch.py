"""Step 2 of an instant: idle devices start ops."""

from pesto_cli.evaluation.simulator.heaps import pop_ready
from pesto_cli.evaluation.simulator.overheads import late_overhead_us
from pesto_cli.evaluation.simulator.state import Given, SimulationState
from pesto_cli.kernels import step


@step
def dispatch(given: Given, state: SimulationState, now: float) -> tuple[bool, bool]:
    """Start an op on every idle device that has a ready op.

    Returns:
        Whether one of the ops ends at this instant, and whether the makespan must exceed the limit.
    """
    devices, at_once, exceeded = state.devices, False, False
    for here in range(len(devices.running)):
        op = next_op(given, state, here) if devices.running[here] < 0 else -1
        if op >= 0:
            exceeded |= now + max(given.tail_us[op], devices.left_us[here]) > given.limit_us
            start_op(given, state, op, here, now)
            at_once |= state.ops.end_us[op] <= now
    return at_once, exceeded


@step
def next_op(given: Given, state: SimulationState, here: int) -> int:
    """Return the op that an idle device starts, or -1; remove it from the ready ops."""
    op = -1
    if len(given.queue) == 0:
        if state.ready.size[here] > 0:
            op = pop_ready(state.ready, here)
    else:
        place = state.ready.first[here] + state.devices.num_started[here]
        if place < state.ready.first[here + 1] and state.ops.awaits[given.queue[place]] == 0:
            op = given.queue[place]
    return op


@step
def start_op(given: Given, state: SimulationState, op: int, here: int, now: float) -> None:
    """Start an op; it ends after its duration, or later by the overhead of transfers."""
    ops, devices, duration_us = state.ops, state.devices, given.graph.duration_us[op, here]
    ops.rank[op] = devices.num_started[here]
    ops.start_us[op], ops.end_us[op] = now, now + duration_us
    if state.uncharged.size[0] > 0 and duration_us > 0:
        ops.end_us[op] += late_overhead_us(given, state, here, now)
    devices.running[here], devices.num_peers[here] = op, 0
    devices.num_started[here] += 1
    devices.left_us[here] -= duration_us
