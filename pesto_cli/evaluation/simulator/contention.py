"""Contention: ops are slower while other devices of the same kind and host run ops.

The devices that run ops are counted at the end of each instant. Then the rest of every op that runs
beside more or fewer of them becomes longer or shorter.
"""

from pesto_cli.evaluation.simulator.state import Given, SimulationState
from pesto_cli.kernels import step


@step
def count_peers(given: Given, state: SimulationState, now: float) -> None:
    """Change the ends of the ops that run beside more or fewer ops than before."""
    devices, end_us = state.devices, state.ops.end_us
    for here in range(len(devices.running)):
        op = devices.running[here]
        if op >= 0:
            num_peers, before = num_running_beside(given, state, here), devices.num_peers[here]
            if num_peers != before:
                slow_down = given.graph.slow_down[op, here]
                end_us[op] = now + (end_us[op] - now) * (1 + num_peers * slow_down) / (
                    1 + before * slow_down
                )
                devices.num_peers[here] = num_peers


@step
def num_running_beside(given: Given, state: SimulationState, here: int) -> int:
    """Return the number of other devices of the same kind and host that run ops."""
    running, group, count = state.devices.running, given.machine.peer_group, 0
    for other in range(len(running)):
        if other != here and running[other] >= 0 and group[other] == group[here]:
            count += 1
    return count


@step
def slowed_us(given: Given, state: SimulationState, op: int, here: int, us: float) -> float:
    """Return the time that a running op needs for more work that takes `us` without contention."""
    if given.machine.has_contention:
        us *= 1 + state.devices.num_peers[here] * given.graph.slow_down[op, here]
    return us
