"""The kernel of the simulator: one instant after the other, each in the steps of the model."""

from typing import NamedTuple

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.evaluation.simulator.arrivals import take_arrivals
from pesto_cli.evaluation.simulator.columns import KernelGraph, KernelMachine
from pesto_cli.evaluation.simulator.dispatch import dispatch
from pesto_cli.evaluation.simulator.ends import end_ops
from pesto_cli.evaluation.simulator.heaps import is_due
from pesto_cli.evaluation.simulator.sends import (
    end_waits_of_idle_receivers,
    end_waits_of_idle_senders,
    queue_on_links,
    send_outputs,
)
from pesto_cli.evaluation.simulator.state import Given, SimulationState, initial_state
from pesto_cli.evaluation.times import Times
from pesto_cli.kernels import kernel, step


class Simulated(NamedTuple):
    """A schedule.

    rank: `[num_ops]`, the place of an op among those of its device; -1 for one that never starts.
    times: of ops and of transfers, the latter in the order in which they were produced.
    """

    rank: IntArray
    times: Times


@kernel
def simulate(
    graph: KernelGraph,
    machine: KernelMachine,
    num_awaited: IntArray,
    device: IntArray,
    key: FloatArray,
    queue: IntArray,
    tail_us: FloatArray,
    limit_us: float,
) -> Simulated:
    """Run one schedule; an op that never starts keeps rank -1.

    A device takes its ready op of lowest key, ties to the lowest index. With a queue (every
    device's ops in order, one device after the other), it waits for the next op of its part.

    Given up as soon as the makespan must exceed the limit: an op starts less than its tail before
    it (at most the time from the op's start to the end of the graph), or less than what its device
    has left to do. What has not started by then keeps rank -1.
    """
    given = Given(graph, machine, device, key, queue, tail_us, limit_us)
    state = initial_state(given, num_awaited)
    now, exceeded = 0.0, False
    while now < np.inf and not exceeded:
        exceeded = happen(given, state, now)
        now = next_instant(state)
    ops, sendings = state.ops, state.sendings
    num_sent = sendings.size[0]
    times = Times(
        ops.start_us,
        ops.end_us,
        sendings.tensor[:num_sent].copy(),
        sendings.dst[:num_sent].copy(),
        sendings.start_us[:num_sent].copy(),
        sendings.end_us[:num_sent].copy(),
    )
    return Simulated(ops.rank, times)


@step
def happen(given: Given, state: SimulationState, now: float) -> bool:
    """All that happens at one instant; whether the makespan must exceed the limit."""
    exceeded, again = False, True
    while again:
        end_ops(given, state, now)
        take_arrivals(given, state, now)
        again, too_late = dispatch(given, state, now)
        exceeded |= too_late
        if not again:
            again = queue_tensors(given, state, now)
    return exceeded


@step
def queue_tensors(given: Given, state: SimulationState, now: float) -> bool:
    """Steps 4 and 5, after all rounds; whether there is another round."""
    if state.produced.size[0] + state.kept.size[0] + state.leaving.size[0] == 0:
        return False
    end_waits_of_idle_receivers(state, now)
    if not is_due(state.events, now):
        send_outputs(given, state, now)
        end_waits_of_idle_senders(state)
        queue_on_links(given, state, now)
    again: bool = is_due(state.events, now)
    return again


@step
def next_instant(state: SimulationState) -> float:
    """When the next op ends or the next event happens; inf if nothing is left."""
    running, events = state.devices.running, state.events
    later: float = events.time_us[0] if events.size[0] > 0 else np.inf
    for here in range(len(running)):
        if running[here] >= 0:
            later = min(later, state.ops.end_us[running[here]])
    return later
