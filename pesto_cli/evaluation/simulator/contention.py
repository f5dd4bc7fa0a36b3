"""Contention: ops are slower while other devices of the same kind and host run ops.

The devices that run ops are counted at the end of each instant. Then the rest of every op that runs
beside more or fewer of them becomes longer or shorter.
"""

from pesto_cli.evaluation.simulator.state import Given, SimulationState
from pesto_cli.kernels import step


@step
def count_peers(given: Given, state: SimulationState, now: float) -> None:
    """Change the ends of the ops that run beside more or fewer ops than before."""
    devices, end_us, group = state.devices, state.ops.end_us, given.machine.peer_group
    devices.num_running[:] = 0
    for here in range(len(group)):
        devices.num_running[group[here]] += devices.running[here] >= 0
    for here in range(len(group)):
        op, before = devices.running[here], devices.num_peers[here]
        num_peers = devices.num_running[group[here]] - 1
        if op >= 0 and num_peers != before:
            slow_down = given.graph.slow_down[op, here]
            end_us[op] = now + (end_us[op] - now) * (1 + num_peers * slow_down) / (
                1 + before * slow_down
            )
            devices.num_peers[here] = num_peers


@step
def slowed_us(given: Given, state: SimulationState, op: int, here: int, us: float) -> float:
    """Return the time that a running op needs for more work that takes `us` without contention."""
    if given.machine.has_contention:
        us *= 1 + state.devices.num_peers[here] * given.graph.slow_down[op, here]
    return us
