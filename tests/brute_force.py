"""The optimum by search over all placements and all orders on devices and links.

This is written from the execution model and shares no code with the integer programs or the
simulator. Links send transfers in any order. A schedule is a choice of orders for all pairs that
could overlap: the search starts everything as early as the choices so far allow, and if two
overlap, it tries both orders.
"""

from itertools import product

import numpy as np

from pesto_cli.data.problem import Problem


def optimum_us(problem: Problem) -> float:
    """Return the shortest makespan of all placements whose variables fit; inf without any."""
    graph = problem.graph
    choices = [np.flatnonzero(row).tolist() for row in problem.group_allowed]
    best = np.inf
    for of_group in product(*choices):
        device = [of_group[group] for group in graph.colocation_group]
        resident = [0.0] * problem.num_devices
        for op, size in enumerate(graph.resident_bytes.tolist()):
            resident[device[op]] += size
        if all(resident[d] <= problem.capacity_bytes[d] for d in range(problem.num_devices)):
            best = min(best, _best_order(*_jobs(problem, device), best))
    return float(best)


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
