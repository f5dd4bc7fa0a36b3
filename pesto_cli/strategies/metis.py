"""`metis`: min-cut by METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998).

Vertices are the colocation groups that several accelerators may run. An edge stands for the tensors
between two groups, and is cut if they are on different devices. METIS minimises the cut, while each
part has its share of the total vertex weight. It ignores time: also with a small cut, one part may
have to wait for the other. So all combinations of these settings are simulated, and the best
placement is returned:

- the weight of an edge is the transfer time, or the bytes;
- the weight of a vertex is its work, its memory, or the mean of its shares of both. The share of a
  device follows its speed, its memory, or the mean of both. METIS could balance both weights at
  once, but pymetis passes only one weight for each vertex;
- METIS has two methods, recursive bisection and k-way, which differ also for two parts;
- the allowed imbalance has four values from 0.1 % to 30 %.

For more than two parts, the halves are cut again, as in METIS's recursive bisection. This is done
here, because METIS prints to the terminal when it has to cut a single vertex.

A group that at most one accelerator may run is not a vertex, and goes to its fastest device. If two
halves should be equal, they are exchanged if this reduces the data exchanged with fixed groups on
other devices.
"""

from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import ClassVar

import numpy as np
import pymetis

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators, fastest_device
from pesto_cli.strategies.memory_estimate import memory_bytes
from pesto_cli.strategies.order import ordered

EDGE_WEIGHTS = ("time", "bytes")
MEMORY_SHARES = (0.0, 0.5, 1.0)
IS_RECURSIVE = (True, False)
IMBALANCES = (1, 30, 100, 300)  # METIS's `ufactor`, in thousandths

# Total of the scaled weights. METIS uses integers, with 32 bits in some builds.
TOTAL_WEIGHT = 10**9


@dataclass(frozen=True)
class Setting:
    """The settings of METIS; see the module's docstring."""

    edge_weight: str
    memory_share: float
    is_recursive: bool
    imbalance: int


SETTINGS = tuple(
    Setting(*choice) for choice in product(EDGE_WEIGHTS, MEMORY_SHARES, IS_RECURSIVE, IMBALANCES)
)


@dataclass(frozen=True)
class Metis:
    """Min-cut by METIS in many settings."""

    name: ClassVar[str] = "metis"

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Return the best solution of all settings within the time limit."""
        simulator, is_over = Simulator(problem), context.limits.begin()
        found: dict[bytes, Schedule] = {}
        graphs = {name: weighted(problem, name) for name in EDGE_WEIGHTS}
        for setting in SETTINGS:
            if found and is_over():
                break
            device = placed(problem, graphs[setting.edge_weight], setting, context.limits.seed)
            if device.tobytes() not in found:
                found[device.tobytes()] = ordered(simulator, device)
        best = min(found.values(), key=lambda schedule: objective(problem, schedule))
        return Solution.of(problem, best)


@dataclass(frozen=True, eq=False)
class Weighted:
    """The data that groups exchange, in both directions: an undirected weighted graph.

    first, second: groups, `[num_entries]`, sorted; each pair occurs as (a, b) and as (b, a).
    weight: `[num_entries]`.
    """

    first: IntArray
    second: IntArray
    weight: FloatArray


def weighted(problem: Problem, edge_weight: str) -> Weighted:
    """Sum the data that each pair of groups exchanges; a tensor counts once per consuming group.

    edge_weight: a name in `EDGE_WEIGHTS`; weights are transfer times in us, or bytes.
    """
    graph, machine = problem.graph, problem.machine
    group = graph.colocation_group
    before, after = graph.control_edges.T
    candidates = accelerators(problem)
    pairs = [(src, dst) for src in candidates for dst in candidates if src != dst]
    if edge_weight == "time" and pairs:
        of_tensor = reduce(np.add, machine.transfers_us(graph.tensor_bytes, pairs)) / len(pairs)
        of_signal = machine.signal_us
    else:
        of_tensor, of_signal = graph.tensor_bytes.astype(np.float64), 0.0
    data = np.where(graph.consumer_on_host, of_signal, of_tensor[graph.consumer_tensor])
    # Tensors have their index, and control edges have num_tensors + the index of their op.
    source = np.concatenate((graph.consumer_tensor, graph.num_tensors + before))
    taker = np.concatenate((group[graph.consumers], group[after]))
    giver = np.concatenate((group[graph.tensor_producer[graph.consumer_tensor]], group[before]))
    weight = np.concatenate((data, np.full(len(before), of_signal)))
    _, once = np.unique(np.column_stack((source, taker)), axis=0, return_index=True)
    once = once[taker[once] != giver[once]]
    ends = np.concatenate(
        (np.column_stack((giver, taker))[once], np.column_stack((taker, giver))[once])
    )
    joined, entry = np.unique(ends, axis=0, return_inverse=True)
    total = np.zeros(len(joined))
    np.add.at(total, entry.reshape(-1), np.tile(weight[once], 2))
    return Weighted(joined[:, 0], joined[:, 1], total)


def placed(problem: Problem, graph: Weighted, setting: Setting, seed: int) -> IntArray:
    """Return the device of each op for one setting, `[num_ops]`."""
    candidates = np.array(accelerators(problem))
    allowed = problem.group_allowed
    is_vertex = allowed[:, candidates].sum(axis=1) > 1
    cut = Cut(
        graph=graph,
        weight=vertex_weight(problem, is_vertex, setting.memory_share),
        target=targets(problem, is_vertex, setting.memory_share),
        towards=_towards(graph, np.where(is_vertex, -1, fastest_device(problem)), candidates),
        setting=setting,
        seed=seed,
    )
    device = fastest_device(problem)
    vertices = np.flatnonzero(is_vertex)
    wanted = candidates[cut.parts(vertices, 0, len(candidates))]
    able = allowed[vertices, wanted]
    device[vertices[able]] = wanted[able]
    return device[problem.graph.colocation_group]


def vertex_weight(problem: Problem, is_vertex: BoolArray, memory_share: float) -> FloatArray:
    """Return the weight of each group: its shares of all work and memory, mixed, `[num_groups]`."""
    time_us = problem.group_time_us[:, accelerators(problem)]
    able = np.isfinite(time_us) & is_vertex[:, None]
    work_us = np.where(able, time_us, 0.0).sum(axis=1) / np.maximum(able.sum(axis=1), 1)
    memory = np.where(is_vertex, memory_bytes(problem, 1.0), 0.0)
    return (1 - memory_share) * _shares(work_us) + memory_share * _shares(memory)


def targets(problem: Problem, is_vertex: BoolArray, memory_share: float) -> FloatArray:
    """Return the target share of each accelerator, by speed and memory, mixed.

    The result is `[num_accelerators]`. Speeds are compared on groups that all of them may run.
    """
    candidates = accelerators(problem)
    time_us = problem.group_time_us[is_vertex][:, candidates]
    common_us = time_us[np.isfinite(time_us).all(axis=1)].sum(axis=0)
    speed = 1 / common_us if (common_us > 0).all() else np.ones(len(candidates))
    room = problem.capacity_bytes[candidates]
    return (1 - memory_share) * _shares(speed) + memory_share * _shares(room)


@dataclass(frozen=True, eq=False)
class Cut:
    """The input of METIS.

    weight: weight of each group, `[num_groups]`.
    target: target share of each part, `[num_parts]`.
    towards: weight of the edges of each group with groups that are fixed to a part,
        `[num_groups, num_parts]`.
    """

    graph: Weighted
    weight: FloatArray
    target: FloatArray
    towards: FloatArray
    setting: Setting
    seed: int

    def parts(self, vertices: IntArray, first: int, last: int) -> IntArray:
        """Return the part of each vertex, `first` <= part < `last`, `[num_vertices]`."""
        if last - first == 1:
            return np.full(len(vertices), first, dtype=np.int64)
        middle = (first + last) // 2
        wanted = self.target[first:last]
        # If all targets are 0, such as for devices without memory, use equal targets.
        wanted = wanted if wanted.any() else np.ones_like(wanted)
        share = float(wanted[: middle - first].sum() / wanted.sum())
        is_upper = self._halves(vertices, share)
        here = self.towards[vertices]
        lower, upper = here[:, first:middle].sum(axis=1), here[:, middle:last].sum(axis=1)
        gain = np.where(is_upper, lower - upper, upper - lower).sum()
        if gain > 0 and abs(share - 0.5) < 1e-9:
            is_upper = ~is_upper
        part = np.empty(len(vertices), dtype=np.int64)
        part[~is_upper] = self.parts(vertices[~is_upper], first, middle)
        part[is_upper] = self.parts(vertices[is_upper], middle, last)
        return part

    def _halves(self, vertices: IntArray, share: float) -> BoolArray:
        """Cut once; return whether each vertex is in the upper part, `[num_vertices]`.

        share: target share of the lower part.
        """
        if len(vertices) < 2 or not 0 < share < 1:
            return np.full(len(vertices), share < 0.5)
        number = np.full(len(self.weight), -1, dtype=np.int64)
        number[vertices] = np.arange(len(vertices))
        inside = (number[self.graph.first] >= 0) & (number[self.graph.second] >= 0)
        degree = np.bincount(number[self.graph.first[inside]], minlength=len(vertices))
        edge_weight = self.graph.weight[inside]
        scale = TOTAL_WEIGHT / max(edge_weight.sum(), 1.0)
        _, part = pymetis.part_graph(
            2,
            pymetis.CSRAdjacency(
                np.append(0, np.cumsum(degree)), number[self.graph.second[inside]]
            ),
            vweights=_whole(_shares(self.weight[vertices]) * TOTAL_WEIGHT),
            eweights=np.maximum(1, _whole(edge_weight * scale)),
            tpwgts=[share, 1 - share],
            recursive=self.setting.is_recursive,
            options=pymetis.Options(ufactor=self.setting.imbalance, seed=self.seed),
        )
        is_upper: BoolArray = np.array(part) == 1
        return is_upper


def _towards(graph: Weighted, fixed: IntArray, candidates: IntArray) -> FloatArray:
    """Return `Cut.towards`; `fixed` is the fixed device of each group, or -1."""
    total = np.zeros((len(fixed), len(candidates)))
    for part, candidate in enumerate(candidates.tolist()):
        there = fixed[graph.second] == candidate
        total[:, part] = np.bincount(graph.first[there], graph.weight[there], minlength=len(fixed))
    return total


def _shares(weights: FloatArray) -> FloatArray:
    """Return each weight as a share of the total; equal shares if the total is 0."""
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / max(len(weights), 1))


def _whole(weights: FloatArray) -> IntArray:
    return np.rint(weights).astype(np.int64)
