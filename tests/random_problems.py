"""Small random problems with all features of the formulation."""

from dataclasses import replace

import numpy as np

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.files.tensorflow_names import labelled


def random_problem(
    seed: int, num_ops: int | None = None, *, memory: bool = True, num_devices: int | None = None
) -> Problem:
    """Return a problem of up to six ops on two or three devices; it depends on the seed alone.

    memory: whether some machines have little memory for variables, and some not enough.
    """
    rng = np.random.default_rng(seed)
    num_ops = int(rng.integers(3, 7)) if num_ops is None else num_ops
    num_devices = int(rng.integers(2, 4)) if num_devices is None else num_devices
    graph = _graph(rng, num_ops, scarce=memory and rng.random() < 0.4)
    machine = _machine(rng, num_devices, graph)
    return Problem.build(graph, _times(rng, graph, machine), machine)


def random_devices(problem: Problem, rng: np.random.Generator) -> np.ndarray:
    """Return a random allowed device for every op; colocation groups may be split."""
    return np.array([rng.choice(np.flatnonzero(row)) for row in problem.allowed])


def random_placement(problem: Problem, seed: int) -> np.ndarray:
    """Return a random allowed device for every op; colocation groups are not split."""
    rng = np.random.default_rng(seed)
    of_group = [int(rng.choice(np.flatnonzero(row))) for row in problem.group_allowed]
    return np.array(of_group)[problem.graph.colocation_group]


def with_random_links(problem: Problem, seed: int) -> Problem:
    """Return the problem with links of 0 to 2 us, some with overhead, delays or one channel."""
    rng = np.random.default_rng(seed)
    lossy, num_names = rng.random() < 0.7, 2 if rng.random() < 0.5 else 0
    names = ("latency_us", "us_per_byte", "sender_us", "receiver_us", "wait_us")

    def comm() -> CommModel:
        values = rng.integers(0, 3, len(names)) * (rng.random(len(names)) < 0.5)
        last = len(names) if lossy else 2
        return CommModel(**dict(zip(names[:last], values[:last].astype(float), strict=True)))

    links = tuple(
        replace(link, comm=comm(), channel="AB"[rng.integers(num_names)] if num_names else "")
        for link in problem.machine.links
    )
    return replace(problem, machine=replace(problem.machine, links=links))


def every_third_contended(problem: Problem, seed: int) -> Problem:
    """Return the problem, with random contention for every third seed."""
    return with_random_contention(problem, seed) if seed % 3 == 2 else problem


def with_random_contention(problem: Problem, seed: int) -> Problem:
    """Return the problem with random contention, and its devices on one or two hosts.

    The slow-down of some op types is 0, and on some machines that of a whole device kind.
    """
    rng = np.random.default_rng([seed, 1])  # other numbers than those of the problem
    hosts = [[""], ["a"], ["", "a"], ["a", "b"]][rng.integers(4)]
    machine, types = problem.machine, sorted({"", *problem.graph.types})
    devices = tuple(replace(device, host=str(rng.choice(hosts))) for device in machine.devices)
    tables = {
        kind: {
            name: float(rng.choice([0.25, 0.5, 1.0, 3.0], p=[0.1, 0.3, 0.3, 0.3]))
            for name in types
            if rng.random() < 0.6
        }
        for kind in sorted({device.kind for device in devices})
    }
    contention = {kind: table for kind, table in tables.items() if table}
    return replace(problem, machine=replace(machine, devices=devices, contention=contention))


def keeps_memory(problem: Problem, device: np.ndarray) -> bool:
    """Return whether the variables of a placement fit into every device's memory."""
    resident = np.bincount(device, problem.graph.resident_bytes, problem.num_devices)
    return bool((resident <= problem.capacity_bytes).all())


def _graph(rng: np.random.Generator, num_ops: int, *, scarce: bool) -> OpGraph:
    tensors, control = [], []
    for producer in range(num_ops - 1):
        later = np.arange(producer + 1, num_ops)
        for _ in range(rng.choice(3, p=[0.15, 0.65, 0.2])):
            consumers = rng.choice(later, min(len(later), int(rng.integers(1, 4))), replace=False)
            on_host = rng.random(len(consumers)) < 0.15
            size = int(rng.integers(0, 9))
            tensors.append(Tensor(producer, size, consumers.tolist(), on_host.tolist()))
        if rng.random() < 0.2:
            control.append((producer, int(rng.choice(later))))
    label = rng.permutation(num_ops)  # indices are not in topological order
    groups = [None if rng.random() < 0.7 else int(rng.integers(2)) for _ in range(num_ops)]
    types = ["Placeholder" if rng.random() < 0.1 else "Op" for _ in range(num_ops)]
    graph = OpGraph.build(
        [f"op{i}" for i in range(num_ops)],
        [
            Tensor(
                int(label[t.producer]), t.num_bytes, label[t.consumers].tolist(), t.consumer_on_host
            )
            for t in tensors
        ],
        types=types,
        control_edges=[(int(label[i]), int(label[j])) for i, j in control],
        colocation_group=[
            None if kind == "Placeholder" else group
            for kind, group in zip(types, groups, strict=True)
        ],
        resident_bytes=rng.integers(1, 8, num_ops) if scarce else None,
    )
    return labelled(graph)


def _machine(rng: np.random.Generator, num_devices: int, graph: OpGraph) -> Machine:
    with_host = rng.random() < 0.5
    kinds = ["CPU" if with_host and d == 0 else "GPU" for d in range(num_devices)]
    equal = rng.random() < 0.5
    limited = graph.resident_bytes.sum() > 0
    share = rng.uniform(0.9, 2.0) * graph.resident_bytes.sum() / num_devices
    devices = tuple(
        Device(
            f"{kind}:{d}",
            kind,
            int(share) if limited else 100,
            speed=1.0 if equal else float(rng.choice([1.0, 2.0])),
            op_overhead_us=0.0 if equal else float(rng.choice([0.0, 0.5])),
        )
        for d, kind in enumerate(kinds)
    )
    comm = CommModel(float(rng.integers(0, 4)), float(rng.choice([0.0, 0.25, 1.0])), 1.0)
    shared = rng.random() < 0.3  # a bus
    links = tuple(
        Link(
            first.name,
            second.name,
            comm if equal else CommModel(float(rng.integers(0, 6)), 0.5, float(rng.integers(0, 3))),
            "bus" if shared else "",
        )
        for first in devices
        for second in devices
        if first is not second
    )
    return Machine(devices, links, signal_us=float(rng.choice([0.0, 1.0, 2.5])))


def _times(rng: np.random.Generator, graph: OpGraph, machine: Machine) -> dict[str, np.ndarray]:
    """Return times by kind; on a mixed machine, some colocation groups lack times on a kind."""
    kinds = sorted({device.kind for device in machine.devices})
    times = {kind: rng.integers(0, 9, graph.num_ops).astype(float) for kind in kinds}
    for column in times.values():
        column[rng.random(graph.num_ops) < 0.15] = 0.0
    if len(kinds) == 2:
        lacking = rng.choice(3, graph.num_groups, p=[0.2, 0.5, 0.3])[graph.colocation_group]
        lacking[[name == "Placeholder" for name in graph.types]] = 2
        for number, kind in enumerate(kinds):
            times[kind][lacking == number] = np.nan
    return times
