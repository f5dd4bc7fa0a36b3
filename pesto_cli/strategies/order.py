"""From a device for every op to a schedule: the order in which devices run their ops.

`ORDERS` has those that are published or that TensorFlow has, by name, to tell what order alone is
worth; strategies use `ordered`.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pesto_cli.data.canonical import canonical_place, rounded
from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.simulator import Simulator

# Of the draws of `random_order`, as many on either side of its median.
NUM_RANDOM_ORDERS = 21

# A schedule for a device for every op, `[num_ops]`.
Order = Callable[[Simulator, IntArray], Schedule]


def ordered(simulator: Simulator, device: IntArray) -> Schedule:
    """The better of two list schedules: by upward rank with and without the transfers.

    Ops of equal rank go in canonical order, so that the answer does not depend on their numbers.

    Args:
        simulator: of the problem.
        device: `[num_ops]`, a device that may run each op.
    """
    place = canonical_place(simulator.problem)
    schedules = []
    for rank_us in (simulator.upward_rank(device), simulator.upward_rank()):
        priority = np.empty(len(place))
        priority[np.lexsort((place, -rounded(rank_us)))] = -np.arange(len(place))
        schedules.append(simulator.list_schedule(device, priority))
    return min(schedules, key=lambda schedule: schedule.makespan_us)


def random_orders_us(
    simulator: Simulator, device: IntArray, count: int, seed: int = 0
) -> FloatArray:
    """Makespans where the order is left to chance: random priorities, `[count]`.

    TensorFlow, given devices alone, takes any of its ready ops (Pesto, Section 2.1).
    """
    random = np.random.default_rng(seed)
    num_ops = simulator.problem.num_ops
    return np.array([simulator.makespan_us(device, random.random(num_ops)) for _ in range(count)])


def first_ready_first(simulator: Simulator, device: IntArray) -> Schedule:
    """Every device takes the op that has been ready for longest; ties to the lowest index.

    When ops become ready depends on the order. So the times of one schedule are the priorities of
    the next, until they stay as they are. This ends: the decisions up to some instant tell when
    the ops became ready that the next decision is between, so each round gets one more right at
    least. Placements of the paper's models take 10 to 900 rounds.
    """
    ready_us = np.zeros(simulator.problem.num_ops)
    while True:
        schedule = simulator.list_schedule(device, -ready_us)
        before_us, ready_us = ready_us, _ready_us(simulator.problem, schedule)
        if (ready_us == before_us).all():
            return schedule


def highest_rank_first(simulator: Simulator, device: IntArray) -> Schedule:
    """HeteroG's order (Yi et al., CoNEXT '20, Section 4.2): rank_i = p_i + max over j of rank_j.

    j are the successors of i, transfers among them, p_i the time of i where it is placed. A device
    takes its ready op of highest rank. Departure: HeteroG serves links by rank too, here they are
    first come first served, as the execution model has it.
    """
    return simulator.list_schedule(device, simulator.upward_rank(device))


def random_order(simulator: Simulator, device: IntArray) -> Schedule:
    """The order by chance of the median makespan, of `NUM_RANDOM_ORDERS`."""
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
    """`[num_ops]`: when all is there that an op waits for."""
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
