"""Insertion-based list scheduling: what HEFT and DPOS share (Topcuoglu et al. 2002, Section 5).

Ops are taken in order of their upward rank. One whose device is not decided yet goes where it ends
earliest, one whose device is decided goes there; in either case into the earliest idle slot that is
long enough, after all that it waits for. Transfers take their time and never wait for each other,
as in both papers' models. The first op of a colocation group decides for all of it.

A variable's handle and its reads wait for nothing outside of their colocation group, so where they
end earliest says nothing of where the variable is needed. They decide nothing: they are placed with
the first op that takes something of them, on the device where that one ends earliest. In the papers
an op moves alone, and there is no such rule.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.simulator.columns import KernelMachine
from pesto_cli.strategies.devices import fastest_device
from pesto_cli.strategies.insertion_kernels import Groups, Ops, WaitsFor, insert, longest_from

# Of costs on one device, or pair of these, after the other: one figure for each op, or edge.
Reduction = Callable[[Iterable[FloatArray]], FloatArray]


def mean(costs_us: Iterable[FloatArray]) -> FloatArray:
    """HEFT's figure for a cost that differs."""
    total, number = np.zeros(()), 0
    for cost_us in costs_us:
        total, number = total + cost_us, number + 1
    return total / number


def largest(costs_us: Iterable[FloatArray]) -> FloatArray:
    """DPOS's figure for a cost that differs."""
    return reduce(np.maximum, costs_us)


@dataclass(frozen=True, eq=False)
class Edges:
    """What ops wait for, an entry for each tensor and consumer and for each control edge.

    tail, head: `[num_edges]`, ops. num_bytes: of the tensor. is_signal: it crosses as a signal.
    """

    tail: IntArray
    head: IntArray
    num_bytes: IntArray
    is_signal: BoolArray

    @classmethod
    def of(cls, problem: Problem) -> "Edges":
        """Data first, then control edges."""
        graph = problem.graph
        before, after = graph.control_edges.T
        return cls(
            tail=np.concatenate((graph.tensor_producer[graph.consumer_tensor], before)),
            head=np.concatenate((graph.consumers, after)),
            num_bytes=np.concatenate(
                (graph.tensor_bytes[graph.consumer_tensor], np.zeros_like(before))
            ),
            is_signal=np.concatenate(
                (graph.consumer_on_host, np.ones(len(before), dtype=np.bool_))
            ),
        )


@dataclass(frozen=True, eq=False)
class Own:
    """A schedule in the model of the papers, without congestion: `[num_ops]` each."""

    device: IntArray
    start_us: FloatArray
    end_us: FloatArray

    @property
    def makespan_us(self) -> float:
        """End of the last op."""
        return float(self.end_us.max(initial=0.0))


def upward_rank(problem: Problem, edges: Edges, reduction: Reduction) -> FloatArray:
    """`[num_ops]`: rank_i = w_i + max over successors j of (c_ij + rank_j).

    w_i is the mean (or largest) time over the devices that may run i, c_ij the mean (or largest)
    time of the transfer over the pairs of different devices that may run i and j; 0 if there is
    none, and within a colocation group.
    """
    patterns, pattern = np.unique(problem.allowed, axis=0, return_inverse=True)
    pattern = pattern.reshape(-1)
    op_us = np.zeros(problem.num_ops)
    for number, devices in enumerate(patterns):
        ops = np.flatnonzero(pattern == number)
        op_us[ops] = reduction(problem.duration_us[ops][:, devices].T)
    cost_us = np.zeros(len(edges.tail))
    together = (
        problem.graph.colocation_group[edges.tail] == (problem.graph.colocation_group[edges.head])
    )
    for first, sources in enumerate(patterns):
        for second, destinations in enumerate(patterns):
            pairs = [
                (src, dst)
                for src in np.flatnonzero(sources).tolist()
                for dst in np.flatnonzero(destinations).tolist()
                if src != dst
            ]
            rows = np.flatnonzero(
                (pattern[edges.tail] == first) & (pattern[edges.head] == second) & ~together
            )
            if pairs:
                cost_us[rows] = reduction(_crossing_us(problem, edges, rows, pairs))
    order = problem.graph.topological_order
    by_tail = np.argsort(edges.tail, kind="stable")
    rank: FloatArray = longest_from(
        order,
        op_us,
        _offsets(edges.tail, problem.num_ops),
        edges.head[by_tail],
        cost_us[by_tail],
    )
    return rank


def insertion_schedule(
    problem: Problem, edges: Edges, rank: FloatArray, decided: IntArray, memory_bytes: FloatArray
) -> Own:
    """Place every op in order of rank, ties in topological order.

    Args:
        problem: what to place.
        edges: of the problem.
        rank: `[num_ops]`, upward ranks.
        decided: `[num_groups]`, the device of a colocation group, or -1 where it is to be chosen.
        memory_bytes: `[num_groups]`, memory that a group takes for good. A device without room for
            it is not chosen as long as another device has room.
    """
    machine = problem.machine
    topological = problem.graph.topological_order
    order = topological[np.argsort(-rank[topological], kind="stable")]
    only_one = problem.group_allowed.sum(axis=1) == 1
    decided = np.where((decided < 0) & only_one, problem.group_allowed.argmax(axis=1), decided)
    by_head = np.argsort(edges.head, kind="stable")
    ops = Ops(
        order,
        problem.duration_us,
        WaitsFor(
            _offsets(edges.head, problem.num_ops),
            edges.tail[by_head],
            edges.num_bytes[by_head],
            edges.is_signal[by_head],
        ),
        problem.graph.colocation_group,
    )
    groups = Groups(problem.group_allowed, fastest_device(problem), memory_bytes, decided)
    links = KernelMachine.of(machine)
    device, start_us, end_us = insert(ops, groups, links, problem.capacity_bytes)
    return Own(device, start_us, end_us)


def _crossing_us(
    problem: Problem, edges: Edges, rows: IntArray, pairs: list[tuple[int, int]]
) -> Iterator[FloatArray]:
    """`[num_rows]` each: how long edges take between each of these pairs of devices."""
    machine, is_signal = problem.machine, edges.is_signal[rows]
    for sent_us in machine.transfers_us(edges.num_bytes[rows], pairs):
        yield np.where(is_signal, machine.signal_us, sent_us)


def _offsets(ends: IntArray, num_ops: int) -> IntArray:
    """`[num_ops + 1]`: rows of edges that are sorted by one of their ends."""
    return np.append(0, np.cumsum(np.bincount(ends, minlength=num_ops)))
