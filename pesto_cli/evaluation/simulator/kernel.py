"""The kernel of the simulator: a loop over instants, each in the steps of the execution model."""

from typing import NamedTuple

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.evaluation.simulator.arrivals import handle_arrivals
from pesto_cli.evaluation.simulator.columns import KernelGraph, KernelMachine
from pesto_cli.evaluation.simulator.contention import count_peers
from pesto_cli.evaluation.simulator.dispatch import dispatch
from pesto_cli.evaluation.simulator.ends import end_ops
from pesto_cli.evaluation.simulator.heaps import is_due
from pesto_cli.evaluation.simulator.sends import (
    end_delays_by_idle_receivers,
    end_delays_by_idle_senders,
    queue_on_links,
    send_outputs,
)
from pesto_cli.evaluation.simulator.state import Given, SimulationState, initial_state
from pesto_cli.evaluation.times import Times
from pesto_cli.kernels import kernel, step


class Simulated(NamedTuple):
    """The schedule that a simulation returns.

    rank: `[num_ops]`, the position of an op on its device; -1 for an op that never starts.
    times: times of ops and transfers; transfers are in the order of their production.
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
    """Simulate one schedule; an op that never starts has rank -1.

    An idle device starts its ready op of lowest key, ties to the lowest index. If `queue` is not
    empty, it has the ops of every device in order, one device after the other; then each device
    runs its ops strictly in this order.

    `tail_us` is a lower bound on the time from each op's start to the end of the graph. The
    simulation stops as soon as the makespan must exceed `limit_us`: when an op starts, and either
    its tail or the remaining work of its device ends after the limit. Later ops have rank -1.
    """
    given = Given(graph, machine, device, key, queue, tail_us, limit_us)
    state = initial_state(given, num_awaited)
    now, exceeded = 0.0, False
    while now < np.inf and not exceeded:
        exceeded = simulate_instant(given, state, now)
        now = next_instant(state)
    return Simulated(state.ops.rank, times_of(given, state))


@kernel
def times_of(given: Given, state: SimulationState) -> Times:
    """Return the times of ops and of transfers of tensors.

    If no op has sent a signal, the columns of transfers are views of arrays of the state.
    """
    ops, transfers, num_sent = state.ops, state.transfers, state.transfers.size[0]
    if state.num_signalling[0] == 0:
        return Times(
            ops.start_us,
            ops.end_us,
            transfers.tensor[:num_sent],
            transfers.dst[:num_sent],
            transfers.start_us[:num_sent],
            transfers.end_us[:num_sent],
        )
    sent = np.flatnonzero(transfers.tensor[:num_sent] < len(given.graph.tensor_bytes))
    return Times(
        ops.start_us,
        ops.end_us,
        transfers.tensor[sent],
        transfers.dst[sent],
        transfers.start_us[sent],
        transfers.end_us[sent],
    )


@step
def simulate_instant(given: Given, state: SimulationState, now: float) -> bool:
    """Do all steps of one instant; return whether the makespan must exceed the limit."""
    exceeded, again = False, True
    while again:
        end_ops(given, state, now)
        handle_arrivals(given, state, now)
        again, too_late = dispatch(given, state, now)
        exceeded |= too_late
        if not again:
            again = queue_tensors(given, state, now)
    if given.machine.has_contention:
        count_peers(given, state, now)
    return exceeded


@step
def queue_tensors(given: Given, state: SimulationState, now: float) -> bool:
    """Do steps 4 and 5, after all rounds; return whether there is another round."""
    if state.produced.size[0] + state.delayed.size[0] + state.leaving.size[0] == 0:
        return False
    end_delays_by_idle_receivers(state, now)
    if not is_due(state.events, now):
        send_outputs(given, state, now)
        end_delays_by_idle_senders(state)
        queue_on_links(given, state, now)
    again: bool = is_due(state.events, now)
    return again


@step
def next_instant(state: SimulationState) -> float:
    """Return the time in us of the next end of an op or event; inf if nothing is left."""
    running, events = state.devices.running, state.events
    later: float = events.time_us[0] if events.size[0] > 0 else np.inf
    for here in range(len(running)):
        if running[here] >= 0:
            later = min(later, state.ops.end_us[running[here]])
    return later
