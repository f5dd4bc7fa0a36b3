"""Execution orders: from the device of each op to a schedule.

Strategies use `ordered`. `ORDERS` has published orders and those of TensorFlow by name, to measure
the effect of the order alone.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pesto_cli.bounds.canonical import canonical_place, rounded
from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.evaluation.simulator import Simulator

# Number of draws of `random_order`; odd, so that the median is one of them.
NUM_RANDOM_ORDERS = 21

# Returns a schedule, given the device of each op, `[num_ops]`.
Order = Callable[[Simulator, IntArray], Schedule]


def ordered(simulator: Simulator, device: IntArray) -> Schedule:
    """Return the better of two list schedules: by upward rank with and without transfers.

    Ops of equal rank are in canonical order, so the result does not depend on op indices.

    Args:
        simulator: simulator of the problem.
        device: the device of each op, `[num_ops]`, which must be allowed.
    """
    ranks_us = (simulator.upward_rank(device), simulator.upward_rank())
    schedules = [
        simulator.list_schedule(device, _priority(simulator.problem, -rounded(rank_us)))
        for rank_us in ranks_us
    ]
    return min(schedules, key=lambda schedule: objective(simulator.problem, schedule))


def in_order_of_depth(simulator: Simulator, device: IntArray) -> Schedule:
    """Return a schedule about as TensorFlow's: what can be ready early runs early.

    In the order of upward ranks, a device computes gradients of variables after the whole backward
    pass, because only their sums and the update follow them. In this order it sends them while the
    backward pass still runs. This is faster if the sums of a data-parallel step take long. Of ops
    of equal depth, such as reads of variables, the one with the highest upward rank is first.
    """
    problem = simulator.problem
    by_rank, depth = -rounded(simulator.upward_rank()), problem.graph.heights
    return simulator.list_schedule(device, _priority(problem, by_rank, depth))


def in_order_of_whole_ops(
    simulator: Simulator, device: IntArray, start_us: FloatArray
) -> tuple[Schedule, ...]:
    """Return three schedules of split ops: the two above, and by the starts of the whole ops.

    start_us: when a schedule of whole ops starts the op that each op serves, `[num_ops]`.
    """
    return (
        ordered(simulator, device),
        in_order_of_depth(simulator, device),
        simulator.list_schedule(device, -start_us),
    )


def _priority(problem: Problem, *keys: FloatArray | IntArray) -> FloatArray:
    """Return the priority of each op, `[num_ops]`: small keys are first, and the last key decides.

    Ops with equal keys are in canonical order, so the result does not depend on op indices.
    """
    priority = np.empty(problem.num_ops)
    priority[np.lexsort((canonical_place(problem), *keys))] = -np.arange(problem.num_ops)
    return priority


def random_orders_us(
    simulator: Simulator, device: IntArray, count: int, seed: int = 0
) -> FloatArray:
    """Return the makespans of `count` random orders in us, `[count]`: priorities are random.

    If TensorFlow is given only devices, a device runs any of its ready ops (Pesto, Section 2.1).
    """
    random = np.random.default_rng(seed)
    num_ops = simulator.problem.num_ops
    return np.array([simulator.makespan_us(device, random.random(num_ops)) for _ in range(count)])


def first_ready_first(simulator: Simulator, device: IntArray) -> Schedule:
    """Return the schedule in FIFO order: first ready, first run; ties to the lowest index.

    When an op becomes ready depends on the order itself. So the ready times of one schedule are the
    priorities of the next, until they no longer change. This ends: each decision depends only on
    ready times that follow from earlier decisions, so each round makes at least one more decision
    final. Placements of the paper's models take 10 to 900 rounds.
    """
    ready_us = np.zeros(simulator.problem.num_ops)
    while True:
        schedule = simulator.list_schedule(device, -ready_us)
        before_us, ready_us = ready_us, _ready_us(simulator.problem, schedule)
        if (ready_us == before_us).all():
            return schedule


def highest_rank_first(simulator: Simulator, device: IntArray) -> Schedule:
    """Return the schedule in HeteroG's order (Yi et al., CoNEXT '20, Section 4.2).

    rank_i = p_i + max over j of rank_j, where p_i is the time of i on its device, and j are the
    successors of i, which include transfers. A device runs its ready op of highest rank. Unlike
    here, HeteroG also serves links by rank; the execution model serves them first come, first
    served.
    """
    return simulator.list_schedule(device, simulator.upward_rank(device))


def random_order(simulator: Simulator, device: IntArray) -> Schedule:
    """Return the schedule with the median makespan of `NUM_RANDOM_ORDERS` random orders."""
    priorities = np.random.default_rng(0).random((NUM_RANDOM_ORDERS, simulator.problem.num_ops))
    makespans_us = [simulator.makespan_us(device, priority) for priority in priorities]
    median = np.argsort(makespans_us, kind="stable")[NUM_RANDOM_ORDERS // 2]
    return simulator.list_schedule(device, priorities[median])


ORDERS: Mapping[str, Order] = {
    "rank": highest_rank_first,
    "fifo": first_ready_first,
    "random": random_order,
}


def _ready_us(problem: Problem, schedule: Schedule) -> FloatArray:
    """Return when all inputs of each op have arrived, in us, `[num_ops]`."""
    graph, transfers = problem.graph, schedule.transfers
    device, end_us = schedule.device, schedule.end_us
    arrival_us = np.repeat(end_us[graph.tensor_producer, None], problem.num_devices, axis=1)
    arrival_us[transfers.tensor, transfers.dst] = transfers.end_us
    producer = graph.tensor_producer[graph.consumer_tensor]
    signalled = graph.consumer_on_host & (device[producer] != device[graph.consumers])
    there_us = np.where(
        signalled,
        end_us[producer] + problem.machine.signal_us,
        arrival_us[graph.consumer_tensor, device[graph.consumers]],
    )
    ready_us = np.zeros(problem.num_ops)
    np.maximum.at(ready_us, graph.consumers, there_us)
    before, after = graph.control_edges[:, 0], graph.control_edges[:, 1]
    signal_us = np.where(device[before] != device[after], problem.machine.signal_us, 0.0)
    np.maximum.at(ready_us, after, end_us[before] + signal_us)
    return ready_us
