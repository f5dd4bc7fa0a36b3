"""`metis`: min-cut by METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998).

Vertices are the colocation groups that several accelerators may run; an edge is what two groups
send each other, and is cut if they are apart. METIS cuts little while every part has its share of
the weight of all vertices. It does not know of time: a small cut can still leave one part to wait
for the other. Every setting is simulated, the best placement is the answer:

- an edge weighs the time of the transfer, or its bytes;
- a vertex weighs its work, its memory, or the mean of its shares of both, and a device takes of it
  by its speed, its memory, or their mean. METIS could balance both at once, but pymetis passes it
  one weight a vertex;
- METIS's two methods, recursive bisection and k-way, which differ for two parts too;
- four degrees of imbalance that a cut is allowed, from 0.1 % to 30 %.

More than two parts come of cutting the halves again, as in METIS's recursive bisection. It is done
here, as METIS prints to the terminal when it is to cut a single vertex.

What only one accelerator may run, or none, is no vertex: it goes where it is fastest. Where halves
are to be equal, they are swapped if they exchange more with what is fixed to the other's devices.
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
from pesto_cli.strategies.devices import accelerators, fastest_device, group_time_us
from pesto_cli.strategies.memory_estimate import memory_bytes
from pesto_cli.strategies.order import ordered

EDGE_WEIGHTS = ("time", "bytes")
MEMORY_SHARES = (0.0, 0.5, 1.0)
IS_RECURSIVE = (True, False)
IMBALANCES = (1, 30, 100, 300)  # METIS's `ufactor`, in thousandths

# METIS counts in whole numbers, 32 bits of them in some builds: what all weights are scaled to.
TOTAL_WEIGHT = 10**9


@dataclass(frozen=True)
class Setting:
    """How METIS is asked; see the head of the file."""

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
        """The best of all settings."""
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
    """What groups send each other, in both directions: an undirected graph.

    first, second: `[num_entries]`, groups, sorted, each pair as (a, b) and as (b, a).
    weight: `[num_entries]`.
    """

    first: IntArray
    second: IntArray
    weight: FloatArray


def weighted(problem: Problem, edge_weight: str) -> Weighted:
    """Add up what each pair of groups exchanges; a tensor counts once for a group that takes it."""
    graph, machine = problem.graph, problem.machine
    group = graph.colocation_group
    before, after = graph.control_edges.T
    hands = accelerators(problem)
    pairs = [(src, dst) for src in hands for dst in hands if src != dst]
    if edge_weight == "time" and pairs:
        of_tensor = reduce(np.add, machine.transfers_us(graph.tensor_bytes, pairs)) / len(pairs)
        of_signal = machine.signal_us
    else:
        of_tensor, of_signal = graph.tensor_bytes.astype(np.float64), 0.0
    data = np.where(graph.consumer_on_host, of_signal, of_tensor[graph.consumer_tensor])
    # Tensors, and behind them the control edges by their op.
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
    """`[num_ops]`: a device for every op."""
    hands = np.array(accelerators(problem))
    allowed = problem.group_allowed
    is_vertex = allowed[:, hands].sum(axis=1) > 1
    cut = Cut(
        graph=graph,
        weight=vertex_weight(problem, is_vertex, setting.memory_share),
        target=targets(problem, is_vertex, setting.memory_share),
        towards=_towards(graph, np.where(is_vertex, -1, fastest_device(problem)), hands),
        setting=setting,
        seed=seed,
    )
    device = fastest_device(problem)
    vertices = np.flatnonzero(is_vertex)
    wanted = hands[cut.parts(vertices, 0, len(hands))]
    able = allowed[vertices, wanted]
    device[vertices[able]] = wanted[able]
    return device[problem.graph.colocation_group]


def vertex_weight(problem: Problem, is_vertex: BoolArray, memory_share: float) -> FloatArray:
    """`[num_groups]`: of all work and of all memory, mixed."""
    time_us = group_time_us(problem)[:, accelerators(problem)]
    able = np.isfinite(time_us) & is_vertex[:, None]
    work_us = np.where(able, time_us, 0.0).sum(axis=1) / np.maximum(able.sum(axis=1), 1)
    memory = np.where(is_vertex, memory_bytes(problem, 1.0), 0.0)
    return (1 - memory_share) * _shares(work_us) + memory_share * _shares(memory)


def targets(problem: Problem, is_vertex: BoolArray, memory_share: float) -> FloatArray:
    """`[num_accelerators]`: what each should have, by its speed and its memory, mixed.

    Speeds are compared on what all of them may run.
    """
    hands = accelerators(problem)
    time_us = group_time_us(problem)[is_vertex][:, hands]
    common_us = time_us[np.isfinite(time_us).all(axis=1)].sum(axis=0)
    speed = 1 / common_us if (common_us > 0).all() else np.ones(len(hands))
    room = problem.capacity_bytes[hands]
    return (1 - memory_share) * _shares(speed) + memory_share * _shares(room)


@dataclass(frozen=True, eq=False)
class Cut:
    """What METIS is to cut, and how.

    weight: `[num_groups]`. target: `[num_parts]`, shares of it.
    towards: `[num_groups, num_parts]`, what a group exchanges with those that are fixed to a part.
    """

    graph: Weighted
    weight: FloatArray
    target: FloatArray
    towards: FloatArray
    setting: Setting
    seed: int

    def parts(self, vertices: IntArray, first: int, last: int) -> IntArray:
        """Divide groups among the parts from `first` to `last`, the latter excluded."""
        if last - first == 1:
            return np.full(len(vertices), first, dtype=np.int64)
        middle = (first + last) // 2
        wanted = self.target[first:last]
        # Where they are to have nothing, such as no memory, every part counts the same.
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
        """Cut once: whether a group is in the upper half; the lower one is to have a share."""
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


def _towards(graph: Weighted, fixed: IntArray, hands: IntArray) -> FloatArray:
    """See `Cut`; `fixed` is the device of every group that has one, else -1."""
    total = np.zeros((len(fixed), len(hands)))
    for part, hand in enumerate(hands.tolist()):
        there = fixed[graph.second] == hand
        total[:, part] = np.bincount(graph.first[there], graph.weight[there], minlength=len(fixed))
    return total


def _shares(weights: FloatArray) -> FloatArray:
    """What each is of all, or the same for each if there is nothing to share."""
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / max(len(weights), 1))


def _whole(weights: FloatArray) -> IntArray:
    return np.rint(weights).astype(np.int64)
