"""The optimum by search over all placements and all orders on devices and links.

This is written from the execution model and shares no code with the integer programs or the
simulator. Links send transfers in any order. A schedule is a choice of orders for all pairs that
could overlap: the search starts everything as early as the choices so far allow, and if two
overlap, it tries both orders.

If ops may be split, the search tries each plan of `plans`; `sharding` makes the ops of its graph.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError
from pesto_cli.sharding.problems import prices_of, rewritten
from pesto_cli.sharding.rules import alternatives


def optimum_of_plans_us(problem: Problem, below_us: float = np.inf) -> float:
    """Return the shortest makespan of all plans with two parts; inf if none is below a limit."""
    best = below_us
    for plan in plans(problem):
        try:
            split = rewritten(problem, plan).problem
        except BadInputError:  # the choices do not fit each other, or a part has no price
            continue
        best = min(best, optimum_us(split, best))
    return best if best < below_us else np.inf


def plans(problem: Problem) -> Iterator[Plan]:
    """Yield all plans that split ops into two parts.

    These are equal, or if quarters have prices, also a quarter and the rest.
    """
    parts = prices_of(problem)
    options: list[list[Choice | None]] = []
    for op in range(problem.num_ops):
        spec = parts.spec(op)
        ways = () if spec is None else alternatives(spec)
        choices = [
            Choice(way.name, sizes) for way in ways for sizes in _two_parts(way.size, parts.numbers)
        ]
        options.append([None, *choices])
    for chosen in product(*options):
        pairs = zip(problem.graph.names, chosen, strict=True)
        yield Plan({name: choice for name, choice in pairs if choice is not None})


def _two_parts(size: int | None, numbers: tuple[int, ...]) -> list[tuple[int, int]]:
    if size is None:
        return [(1, 1)]
    quarters = (1, 2, 3) if numbers[-1] >= 4 else (2,)
    firsts = sorted({max(size * quarter // 4, 1) for quarter in quarters})
    return [(units, size - units) for units in firsts]


def optimum_us(problem: Problem, below_us: float = np.inf) -> float:
    """Return the shortest makespan of all placements whose variables fit.

    inf without any, or if none is below a limit.
    """
    best = below_us
    for device in _placements(problem, below_us):
        best = min(best, _best_order(*_jobs(problem, device), best))
    return float(best) if best < below_us else np.inf


def _placements(problem: Problem, below_us: float) -> Iterator[list[int]]:
    """Yield a device for each op: all placements whose variables fit, and that keep a limit.

    A placement exceeds it if a device is busy for as long, or all devices together are.
    """
    graph, devices = problem.graph, range(problem.num_devices)
    groups = [graph.groups[group].tolist() for group in range(graph.num_groups)]
    allowed = [np.flatnonzero(row).tolist() for row in problem.group_allowed]
    work_us = [problem.duration_us[ops].sum(axis=0).tolist() for ops in groups]
    size = [int(graph.resident_bytes[ops].sum()) for ops in groups]
    least_us = [min(work_us[group][d] for d in allowed[group]) for group in range(len(groups))]
    left_us = np.cumsum([0.0, *least_us[::-1]])[::-1].tolist()
    capacity = problem.capacity_bytes.tolist()
    of_group: list[int] = []

    def place(busy_us: list[float], free: list[float]) -> Iterator[list[int]]:
        group = len(of_group)
        if max(busy_us) >= below_us or sum(busy_us) + left_us[group] >= len(devices) * below_us:
            return
        if group == len(groups):
            yield [of_group[each] for each in graph.colocation_group.tolist()]
            return
        for device in allowed[group]:
            if size[group] <= free[device]:
                of_group.append(device)
                yield from place(
                    [us + (d == device) * work_us[group][d] for d, us in enumerate(busy_us)],
                    [left - (d == device) * size[group] for d, left in enumerate(free)],
                )
                of_group.pop()

    yield from place([0.0] * len(devices), capacity)


Arc = tuple[int, int, float]


def _jobs(problem: Problem, device: list[int]) -> tuple[list[float], list[object], list[Arc]]:
    """Return durations and resources of ops and transfers, and arcs (before, after, delay)."""
    graph, machine = problem.graph, problem.machine
    durations = [float(problem.duration_us[op, d]) for op, d in enumerate(device)]
    resources: list[object] = [("device", d) for d in device]
    arcs: list[Arc] = []
    for before, after in graph.control_edges.tolist():
        apart = device[before] != device[after]
        arcs.append((before, after, machine.signal_us if apart else 0.0))
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        sent: dict[int, int] = {}
        begin, end = graph.consumer_offsets[tensor : tensor + 2]
        for consumer, on_host in zip(
            graph.consumers[begin:end].tolist(), graph.consumer_on_host[begin:end], strict=True
        ):
            src, dst = device[producer], device[consumer]
            if src == dst:
                arcs.append((producer, consumer, 0.0))
            elif on_host:
                arcs.append((producer, consumer, machine.signal_us))
            else:
                if dst not in sent:
                    sent[dst] = len(durations)
                    size = int(graph.tensor_bytes[tensor])
                    linear = machine.latency_us[src, dst] + machine.us_per_byte[src, dst] * size
                    durations.append(max(float(machine.min_us[src, dst]), float(linear)))
                    resources.append(("channel", int(machine.channel[src, dst])))
                    arcs.append((producer, sent[dst], 0.0))
                arcs.append((sent[dst], consumer, 0.0))
    return durations, resources, arcs


def _best_order(
    durations: list[float], resources: list[object], arcs: list[Arc], best: float
) -> float:
    """Return the shortest makespan of these jobs if it is below `best`, else `best`."""
    start = _earliest(durations, arcs, best)
    if start is None:
        return best
    end = [s + t for s, t in zip(start, durations, strict=True)]
    for i in range(len(durations)):
        for j in range(i):
            if resources[i] == resources[j] and end[i] > start[j] and end[j] > start[i]:
                for before, after in ((i, j), (j, i)):
                    both = [*arcs, (before, after, 0.0)]
                    best = min(best, _best_order(durations, resources, both, best))
                return best
    return max(end)


def _earliest(durations: list[float], arcs: list[Arc], best: float) -> list[float] | None:
    """Return earliest starts by repeated relaxation; None if none end before `best`."""
    start = [0.0] * len(durations)
    for _ in range(len(durations) + 1):
        changed = False
        for before, after, delay in arcs:
            ready = start[before] + durations[before] + delay
            if ready > start[after]:
                start[after], changed = ready, True
        if not changed:
            ends = (s + t for s, t in zip(start, durations, strict=True))
            return start if max(ends) < best else None
    return None
