"""The transfer overhead of ops that run on the sender or receiver while a transfer is on its link.

A device that runs an op when a transfer starts has the whole overhead in this op. A device that is
idle then has a share of it in the first op that starts before the transfer ends: the share of the
transfer's time that is left.
"""

from pesto_cli.evaluation.simulator.contention import slowed_us
from pesto_cli.evaluation.simulator.state import Given, SimulationState, append, is_signal, sort
from pesto_cli.kernels import step


@step
def start_transfer(given: Given, state: SimulationState, transfer: int) -> None:
    """Add the overhead of a transfer to the ops that run on its endpoints."""
    for side in range(2):
        here = endpoint(state, transfer, side)
        op = state.devices.running[here]
        if op >= 0:
            overhead_us = overhead_of(given, state, transfer, side)
            state.ops.end_us[op] += slowed_us(given, state, op, here, overhead_us)
        else:
            append(state.uncharged, 2 * transfer + side)


@step
def late_overhead_us(given: Given, state: SimulationState, here: int, now: float) -> float:
    """Return the overhead of an op that starts during transfers whose overhead no op has yet.

    Remove these transfers from the list, and those that have ended.
    """
    uncharged, transfers, num_left, us = state.uncharged, state.transfers, 0, 0.0
    if uncharged.size[0] > 1:
        sort(uncharged)
    for row in range(uncharged.size[0]):
        transfer, side = uncharged.items[row] // 2, uncharged.items[row] % 2
        start_us, end_us = transfers.start_us[transfer], transfers.end_us[transfer]
        if end_us > now and endpoint(state, transfer, side) == here:
            overhead_us = overhead_of(given, state, transfer, side)
            us += overhead_us * ((end_us - now) / (end_us - start_us))
        elif end_us > now:
            uncharged.items[num_left] = uncharged.items[row]
            num_left += 1
    uncharged.size[0] = num_left
    return us


@step
def endpoint(state: SimulationState, transfer: int, side: int) -> int:
    """Return the sender (side 0) or receiver (side 1) of a transfer."""
    transfers = state.transfers
    device: int = transfers.src[transfer] if side == 0 else transfers.dst[transfer]
    return device


@step
def overhead_of(given: Given, state: SimulationState, transfer: int, side: int) -> float:
    """Return the overhead of a transfer in us at its sender (side 0) or receiver (side 1)."""
    src, dst = state.transfers.src[transfer], state.transfers.dst[transfer]
    overhead_us = given.machine.transfer_overhead_us
    tensor, us = state.transfers.tensor[transfer], overhead_us[side, 0, src, dst]
    if not is_signal(given, tensor):
        us += overhead_us[side, 1, src, dst] * given.graph.tensor_bytes[tensor]
    return float(us)
