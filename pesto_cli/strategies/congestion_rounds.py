"""Place without congestion, measure transfers with congestion, and place again, in rounds.

HEFT and DPOS assume that transfers never wait for each other, and so may overload a link. FastT's
remedy (Yi et al., Middleware '20, Section 4, "Cost Models") is: run the placement, and record the
time of each transfer from the end of its producer, waiting included. For each pair of devices, fit
a line over tensor sizes to all recorded times. Then place again with these lines. A placement that
is slower than an earlier one is discarded. Here the simulator replaces the run.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.machine import MAX_TIME_US, CommModel, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective, shortfall_bytes
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.insertion_scheduling import IdealSchedule
from pesto_cli.strategies.memory_estimate import memory_bytes
from pesto_cli.strategies.order import ordered

NUM_ROUNDS = 30

# Assumed share of the accelerators' free memory that outputs use. The memory of an op is its
# variables and a share of its outputs. A value is tried only if no round with the values before it
# has a placement that fits.
FILLS = (0.0, 0.5, 0.8, 0.95)

# Called with a problem with the assumed transfer times, and the memory of each colocation group in
# bytes, `[num_groups]`.
Place = Callable[[Problem, FloatArray], IdealSchedule]

# By (source, destination): the sizes of observed tensors in bytes, and their times in us.
Observations = dict[tuple[int, int], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, eq=False)
class Round:
    """A schedule, and the assumptions with which its ops were placed.

    machine: with the assumed transfer times.
    fill: the assumed share of memory that outputs use; see `filled_bytes`.
    """

    schedule: Schedule
    machine: Machine
    fill: float


def best_of_rounds(problem: Problem, context: Context, place: Place) -> Round:
    """Return the best of `NUM_ROUNDS` rounds; one that fits in memory, if there is any."""
    simulator, is_over = Simulator(problem), context.limits.begin()
    found: list[Round] = []
    for fill in FILLS:
        need, assumed, observed = filled_bytes(problem, fill), problem, Observations()
        for _ in range(NUM_ROUNDS):
            if found and is_over():
                break
            schedule = simulated(simulator, place(assumed, need))
            found.append(Round(schedule, assumed.machine, fill))
            if len(schedule.transfers) == 0:
                break  # there is no new observation
            observed = _with_observed(problem, schedule, observed)
            assumed = _with_transfers(problem, observed)
        if not all(shortfall_bytes(problem, each.schedule).any() for each in found):
            break
    return min(found, key=lambda each: objective(problem, each.schedule))


def filled_bytes(problem: Problem, fill: float) -> FloatArray:
    """Return the assumed memory of each group in bytes, `[num_groups]`.

    The memory of a group is its variables and a share of its outputs. The share is chosen so that
    all outputs together use the share `fill` of the accelerators' memory without variables.
    """
    variables, everything = memory_bytes(problem, 0.0), memory_bytes(problem, 1.0)
    outputs = everything - variables
    free = problem.capacity_bytes[accelerators(problem)].sum() - variables.sum()
    share = fill * min(1.0, max(free, 0.0) / max(outputs.sum(), 1.0))
    filled: FloatArray = variables + share * outputs
    return filled


def simulated(simulator: Simulator, ideal: IdealSchedule) -> Schedule:
    """Return the better of two list schedules: by the ideal starts, and by `ordered`.

    In the first, the starts are priorities, as FastT enforces its order (Section 6.1, "Order
    Enforcement").
    """
    schedules = (
        simulator.list_schedule(ideal.device, -ideal.start_us),
        ordered(simulator, ideal.device),
    )
    return min(schedules, key=lambda schedule: objective(simulator.problem, schedule))


def _with_observed(problem: Problem, schedule: Schedule, observed: Observations) -> Observations:
    """Return the observations, extended by the transfers of one more schedule."""
    graph, transfers = problem.graph, schedule.transfers
    producer = graph.tensor_producer[transfers.tensor]
    num_bytes = graph.tensor_bytes[transfers.tensor].astype(np.float64)
    took_us = transfers.end_us - schedule.end_us[producer]
    src, dst = schedule.device[producer], transfers.dst
    more = dict(observed)
    for pair in sorted(set(zip(src.tolist(), dst.tolist(), strict=True))):
        rows = (src == pair[0]) & (dst == pair[1])
        before = observed.get(pair, (np.empty(0), np.empty(0)))
        more[pair] = (
            np.append(before[0], num_bytes[rows]),
            np.append(before[1], took_us[rows]),
        )
    return more


def _with_transfers(problem: Problem, observed: Observations) -> Problem:
    """Return the problem with links fitted to their observations, if there are any."""
    machine = problem.machine
    links = []
    for link in machine.links:
        pair = (machine.index_of[link.src], machine.index_of[link.dst])
        links.append(replace(link, comm=fitted(*observed[pair])) if pair in observed else link)
    return replace(problem, machine=replace(machine, links=tuple(links)))


def fitted(num_bytes: FloatArray, took_us: FloatArray) -> CommModel:
    """Fit a line by least squares, without negative coefficients.

    A negative latency is replaced by 0, and a negative slope by 0, with the other coefficient
    fitted again. Coefficients above the maximum of a link are replaced by the maximum: a transfer
    of many bytes may take longer than any latency may be.
    """
    latency_us, us_per_byte = _line(num_bytes, took_us)
    return CommModel(min(latency_us, MAX_TIME_US), min(us_per_byte, MAX_TIME_US))


def _line(num_bytes: FloatArray, took_us: FloatArray) -> tuple[float, float]:
    """Return the latency in us and the us per byte, both at least 0."""
    spread = num_bytes - num_bytes.mean()
    if not spread.any():
        return float(took_us.mean()), 0.0
    slope = float((spread * took_us).sum() / (spread * spread).sum())
    if slope < 0:
        return float(took_us.mean()), 0.0
    latency_us = float(took_us.mean() - slope * num_bytes.mean())
    if latency_us < 0:
        return 0.0, float((num_bytes * took_us).sum() / (num_bytes * num_bytes).sum())
    return latency_us, slope
