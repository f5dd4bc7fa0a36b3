"""Place without congestion, see what congestion makes of it, and place again.

HEFT and DPOS take transfers to be free of each other, and so make more of them than a link carries.
FastT's remedy (Yi et al., Middleware '20, Section 4, "Cost Models"): run the placement, note how
long every transfer took from the end of its producer, waiting included, fit a line over sizes to
all that was noted for a pair of devices, and place again with these; a strategy that turns out
slower is rolled back. Here the simulator stands for the run.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.machine import CommModel
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective, shortfall_bytes
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.insertion_scheduling import Own
from pesto_cli.strategies.memory_estimate import memory_bytes
from pesto_cli.strategies.order import ordered

NUM_ROUNDS = 30

# How full of outputs all accelerators are taken to be together: an op counts a share of its outputs
# as its memory, beside its variables. The next one only if no round of the one before fits.
FILLS = (0.0, 0.5, 0.8, 0.95)

# A problem with the transfers as they are believed to be, and the memory that every group counts
# for, `[num_groups]`.
Place = Callable[[Problem, FloatArray], Own]

# Of a pair of devices: sizes of tensors, and how long they took.
Notes = dict[tuple[int, int], tuple[FloatArray, FloatArray]]


def best_of_rounds(problem: Problem, context: Context, place: Place) -> Schedule:
    """The best of `NUM_ROUNDS` placements; one that exceeds the memory only if none fits."""
    simulator, is_over = Simulator(problem), context.limits.begin()
    found: list[Schedule] = []
    for fill in FILLS:
        need, believed, notes = filled_bytes(problem, fill), problem, Notes()
        for _ in range(NUM_ROUNDS):
            if found and is_over():
                break
            found.append(judged(simulator, place(believed, need)))
            if len(found[-1].transfers) == 0:
                break  # nothing new to learn
            notes = _noted(problem, found[-1], notes)
            believed = _with_transfers(problem, notes)
        if not all(shortfall_bytes(problem, schedule).any() for schedule in found):
            break
    return min(found, key=lambda schedule: objective(problem, schedule))


def filled_bytes(problem: Problem, fill: float) -> FloatArray:
    """`[num_groups]`: variables, and of all outputs as much as fills what these leave free."""
    variables, everything = memory_bytes(problem, 0.0), memory_bytes(problem, 1.0)
    outputs = everything - variables
    free = problem.capacity_bytes[accelerators(problem)].sum() - variables.sum()
    share = fill * min(1.0, max(free, 0.0) / max(outputs.sum(), 1.0))
    filled: FloatArray = variables + share * outputs
    return filled


def judged(simulator: Simulator, own: Own) -> Schedule:
    """The better of two list schedules: in the order of the own starts, and as `ordered` gives it.

    Starts are priorities, as FastT enforces its order (Section 6.1, "Order Enforcement").
    """
    schedules = (
        simulator.list_schedule(own.device, -own.start_us),
        ordered(simulator, own.device),
    )
    return min(schedules, key=lambda schedule: objective(simulator.problem, schedule))


def _noted(problem: Problem, schedule: Schedule, notes: Notes) -> Notes:
    """What is known of transfers, with those of one more schedule."""
    graph, transfers = problem.graph, schedule.transfers
    producer = graph.tensor_producer[transfers.tensor]
    num_bytes = graph.tensor_bytes[transfers.tensor].astype(np.float64)
    took_us = transfers.end_us - schedule.end_us[producer]
    src, dst = schedule.device[producer], transfers.dst
    more = dict(notes)
    for pair in sorted(set(zip(src.tolist(), dst.tolist(), strict=True))):
        rows = (src == pair[0]) & (dst == pair[1])
        before = notes.get(pair, (np.empty(0), np.empty(0)))
        more[pair] = (
            np.append(before[0], num_bytes[rows]),
            np.append(before[1], took_us[rows]),
        )
    return more


def _with_transfers(problem: Problem, notes: Notes) -> Problem:
    """The problem with links as they were found; those that were not used stay."""
    machine = problem.machine
    links = []
    for link in machine.links:
        pair = (machine.index_of[link.src], machine.index_of[link.dst])
        links.append(replace(link, comm=fitted(*notes[pair])) if pair in notes else link)
    return replace(problem, machine=replace(machine, links=tuple(links)))


def fitted(num_bytes: FloatArray, took_us: FloatArray) -> CommModel:
    """Least squares; through the origin, or level, where a coefficient would be negative."""
    spread = num_bytes - num_bytes.mean()
    if not spread.any():
        return CommModel(float(took_us.mean()), 0.0)
    slope = float((spread * took_us).sum() / (spread * spread).sum())
    latency_us = float(took_us.mean() - slope * num_bytes.mean())
    if slope < 0:
        return CommModel(float(took_us.mean()), 0.0)
    if latency_us < 0:
        through = float((num_bytes * took_us).sum() / (num_bytes * num_bytes).sum())
        return CommModel(0.0, through)
    return CommModel(latency_us, slope)
