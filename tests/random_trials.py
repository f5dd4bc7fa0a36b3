"""Random problems with placements, priorities and ranks, for comparisons of two simulators.

All numbers are small multiples of 1/2, so that sums are exact and ties occur. Every third trial has
contention; then some times are rounded.
"""

from typing import NamedTuple

import numpy as np
from random_problems import every_third_contended, random_placement

from pesto_cli.data.graph import IntArray, OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement
from pesto_cli.errors import InfeasibleError
from pesto_cli.files.tensorflow_names import labelled


class Trial(NamedTuple):
    """A problem, priorities for a list schedule, and a placement for a replay."""

    problem: Problem
    priority: np.ndarray
    placement: Placement


def random_trial(seed: int) -> Trial:
    """Return a random trial, which depends on the seed alone."""
    rng = np.random.default_rng(seed)
    problem = _problem(rng)
    device = random_placement(problem, seed)
    priority = rng.integers(0, rng.choice([2, 4, 50]), problem.num_ops).astype(float)
    placement = Placement(device, _ranks(rng, problem.graph, device))
    return Trial(every_third_contended(problem, seed), priority, placement)


def _problem(rng: np.random.Generator) -> Problem:
    while True:
        graph, machine = _graph(rng, int(rng.integers(1, rng.choice([8, 24, 40])))), _machine(rng)
        try:
            return Problem.build(graph, _times(rng, graph, machine), machine)
        except InfeasibleError:  # a colocation group whose ops share no kind
            continue


def _graph(rng: np.random.Generator, num_ops: int) -> OpGraph:
    label = rng.permutation(num_ops).tolist()  # indices are not in topological order
    tensors, control = [], []
    most_consumers = int(rng.integers(1, 4))
    resident_bytes = rng.choice([0, 0, 0, 2, 5], num_ops)
    # A few ops alias an op; some of these do not consume a tensor of that op.
    alias_of = np.where(rng.random(num_ops) < 0.04, rng.integers(0, num_ops, num_ops), -1)
    for place, producer in enumerate(label):
        later = label[place + 1 :]
        for _ in range(rng.choice(3, p=[0.25, 0.5, 0.25])):
            num_consumers = int(rng.integers(0, most_consumers + 1))
            consumers = rng.permutation(np.array(later, dtype=np.int64))[:num_consumers].tolist()
            on_host = (rng.random(len(consumers)) < 0.2).tolist()
            tensors.append(Tensor(producer, int(rng.integers(0, 4)), consumers, on_host))
            alias_of[[op for op in consumers if rng.random() < 0.3]] = producer
        if later and rng.random() < 0.25:
            control.append((producer, int(rng.choice(later))))
    is_variable = (resident_bytes > 0) & (rng.random(num_ops) < 0.5)
    alias_of[is_variable] = np.flatnonzero(is_variable)
    graph = OpGraph.build(
        [f"op{op}" for op in range(num_ops)],
        tensors,
        types=rng.choice(["Op", "Placeholder", "_Retval"], num_ops, p=[0.8, 0.13, 0.07]).tolist(),
        control_edges=control,
        colocation_group=[int(rng.choice(2)) if rng.random() < 0.25 else None for _ in label],
        resident_bytes=resident_bytes,
        alias_of=alias_of,
        num_members=rng.choice([1, 1, 2], num_ops),
    )
    return labelled(graph)


def _machine(rng: np.random.Generator) -> Machine:
    """Return a machine of up to five devices, any of them CPUs; half of them have equal devices."""
    num_devices = int(rng.integers(1, 6))
    kinds = rng.choice(["CPU", "GPU"], num_devices, p=rng.choice([[0.3, 0.7], [0.0, 1.0]]))
    is_equal = rng.random() < 0.5
    devices = tuple(
        Device(
            f"{kind}:{number}",
            str(kind),
            100,
            speed=1.0 if is_equal else float(rng.choice([0.5, 1, 2])),
            op_overhead_us=0.0 if is_equal else float(rng.choice([0, 0, 1])),
        )
        for number, kind in enumerate(kinds)
    )
    has, slowness = rng.random(5) < 0.5, float(rng.choice([1, 1, 3]))
    common = _comm(rng, has, slowness)
    channels = [[""], ["bus"], ["", "", "a", "b"]][rng.integers(3)]
    links = tuple(
        Link(
            src.name,
            dst.name,
            common if is_equal else _comm(rng, has, slowness),
            str(rng.choice(channels)),
        )
        for src in devices
        for dst in devices
        if src is not dst
    )
    return Machine(devices, links, signal_us=float(rng.choice([0, 0, 1, 2])))


def _comm(rng: np.random.Generator, has: np.ndarray, slowness: float) -> CommModel:
    """Return a link; `has` says which of the four parts of overhead and `wait_us` are not 0."""
    return CommModel(
        latency_us=slowness * float(rng.choice([0, 0, 1, 2])),
        us_per_byte=slowness * float(rng.choice([0, 0, 0.5, 1])),
        min_us=float(rng.choice([0, 0, 0, 2])),
        sender_us=has[0] * float(rng.choice([0, 1, 2])),
        sender_us_per_byte=has[1] * float(rng.choice([0, 1])),
        receiver_us=has[2] * float(rng.choice([0, 1, 2])),
        receiver_us_per_byte=has[3] * float(rng.choice([0, 1])),
        wait_us=has[4] * float(rng.choice([1, 2, 4])),
    )


def _times(rng: np.random.Generator, graph: OpGraph, machine: Machine) -> dict[str, np.ndarray]:
    """Return times by kind; on a mixed machine, some colocation groups lack times on a kind."""
    kinds = sorted({device.kind for device in machine.devices})
    times = {
        kind: rng.choice([0, 0, 0, 1, 1, 2, 3, 6], graph.num_ops).astype(float) for kind in kinds
    }
    if len(kinds) > 1:
        lacking = rng.choice([*kinds, ""], graph.num_groups, p=[0.2, 0.2, 0.6])
        for kind, column in times.items():
            column[lacking[graph.colocation_group] == kind] = np.nan
    return times


def _ranks(rng: np.random.Generator, graph: OpGraph, device: IntArray) -> IntArray:
    """Return ranks of a random topological order, or in some cases of any order."""
    key = rng.random(graph.num_ops)
    if rng.random() < 0.9:
        for op in graph.topological_order:
            key[op] = max([key[op], *(key[graph.predecessors[op]] + rng.random() / 9)])
    order = np.argsort(key, kind="stable")
    rank = np.zeros(graph.num_ops, dtype=np.int64)
    for number in range(int(device.max(initial=-1)) + 1):
        ops = order[device[order] == number]
        rank[ops] = np.arange(len(ops))
    return rank
