"""The cost of a state: makespan of its list schedule, memory excess and transfers.

Let C_max be the makespan of the list schedule by rank + offset, e the share by which peak memory
exceeds the capacity, and T the total duration of all transfers. The cost is

    C_max (1 + penalty e) + TRANSFERS_SHARE T

Most moves do not change the makespan. The last term prefers states with fewer transfers, in which
links and devices have more free time.
"""

from typing import NamedTuple, Self

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.copies import MemoryColumns, peak_held_bytes, surely_fits
from pesto_cli.evaluation.simulator import Simulator, longest_tails, simulate, transfers_us
from pesto_cli.evaluation.simulator.columns import KernelGraph, KernelMachine
from pesto_cli.evaluation.times import Times
from pesto_cli.kernels import kernel
from pesto_cli.refine.samples import Samples

TRANSFERS_SHARE = 0.05  # measurements are in docs/search.md


class CostData(NamedTuple):
    """The part of a problem that is read to compute the cost of a state.

    graph, machine: the problem's graph and machine, as the simulator's kernel reads them.
    waits: number of tensors and control edges for which each op waits, `[num_ops]`.
    goes_first: whether the op runs before all others, as feeds do, `[num_ops]`.
    topological_order: the ops in topological order, `[num_ops]`.
    memory: sizes, producers and consumers of tensors, to compute the peak memory.
    resident_bytes: memory that each op holds throughout the step, `[num_ops]`.
    capacity_bytes: memory of each device that may be used, `[num_devices]`.
    may_exceed: whether any state could exceed the capacity of a device.
    samples: op times and delays in each sample, for a robust search; see `sampled_cost`.
    """

    graph: KernelGraph
    machine: KernelMachine
    waits: IntArray
    goes_first: BoolArray
    topological_order: IntArray
    memory: MemoryColumns
    resident_bytes: IntArray
    capacity_bytes: FloatArray
    may_exceed: bool
    samples: Samples

    @classmethod
    def of(cls, simulator: Simulator, samples: Samples | None = None) -> Self:
        """Return the data of the simulator's problem, and of samples of its op times and delays."""
        graph = simulator.problem.graph
        return cls(
            graph=simulator.kernel_graph,
            machine=simulator.kernel_machine,
            waits=simulator.kernel_waits,
            goes_first=simulator.kernel_first,
            topological_order=graph.topological_order,
            memory=MemoryColumns.of(graph),
            resident_bytes=graph.resident_bytes,
            capacity_bytes=simulator.problem.capacity_bytes,
            may_exceed=_may_exceed(simulator.problem),
            samples=Samples.none() if samples is None else samples,
        )


class Evaluation(NamedTuple):
    """The result of a simulation of a placement and an order.

    makespan_us: inf if the cost exceeds the limit; then start, key and rank are undefined.
    excess: share by which peak memory exceeds the capacity, summed over devices.
    transfers_us: total duration of all transfers.
    start, key: see `State`.
    rank: position of each op on its device, `[num_ops]`.
    """

    makespan_us: float
    excess: float
    transfers_us: float
    start: FloatArray
    key: FloatArray
    rank: IntArray


def _may_exceed(problem: Problem) -> bool:
    """Return whether all variables and a copy of each tensor would exceed a device's capacity."""
    everything = problem.graph.resident_bytes.sum() + problem.graph.held_bytes.sum()
    return bool((everything > problem.capacity_bytes).any())


@kernel
def cost_us(makespan_us: float, excess: float, transfers: float, penalty: float) -> float:
    """Return the cost of a state by the formula in the module's docstring."""
    return makespan_us * (1.0 + penalty * excess) + TRANSFERS_SHARE * transfers


@kernel
def evaluate(data: CostData, device: IntArray, offset: FloatArray, limit_us: float) -> Evaluation:
    """Simulate the list schedule by rank + offset; stop as soon as its cost exceeds the limit."""
    # Read each column of a tuple once, not for each op, as each read updates a reference count.
    graph, machine, order = data.graph, data.machine, data.topological_order
    duration_us, goes_first = graph.duration_us, data.goes_first
    num_ops = len(device)
    transfers = transfers_us(graph, machine, device)
    limit_us -= TRANSFERS_SHARE * transfers  # from here on a limit on the makespan
    duration, load = np.empty(num_ops), np.zeros(len(data.capacity_bytes))
    for op in range(num_ops):
        duration[op] = duration_us[op, device[op]]
        load[device[op]] += duration[op]
    if load.max() > limit_us:
        return Evaluation(np.inf, 0.0, transfers, duration, duration, order)
    tail = longest_tails(order, duration, graph, machine, device)
    key = np.empty(num_ops)
    for op in range(num_ops):
        if tail[op] > limit_us:
            return Evaluation(np.inf, 0.0, transfers, duration, key, order)
        key[op] = -np.inf if goes_first[op] else -(tail[op] + offset[op])
    rank, times = simulate(graph, machine, data.waits, device, key, order[:0], tail, limit_us)
    makespan, end_us = 0.0, times.end_us
    for op in range(num_ops):
        if rank[op] < 0:
            return Evaluation(np.inf, 0.0, transfers, duration, key, order)
        makespan = max(makespan, end_us[op])
    excess = 0.0
    if data.may_exceed and makespan <= limit_us:
        excess = _excess(data, device, times)
    return Evaluation(makespan, excess, transfers, times.start_us, key, rank)


@kernel
def _excess(data: CostData, device: IntArray, times: Times) -> float:
    """Return the share by which peak memory exceeds the capacity, summed over devices."""
    memory, capacity, resident_bytes = data.memory, data.capacity_bytes, data.resident_bytes
    resident = np.zeros(len(capacity), np.int64)
    for op in range(len(device)):
        resident[device[op]] += resident_bytes[op]
    if surely_fits(memory, device, times, resident, capacity):
        return 0.0
    peak = peak_held_bytes(memory, device, times, resident)
    excess = 0.0
    for here in range(len(capacity)):
        if peak[here] > capacity[here]:
            excess += (peak[here] - capacity[here]) / (capacity[here] + 1.0)
    return excess
