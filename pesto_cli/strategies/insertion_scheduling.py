"""Insertion-based list scheduling, used by HEFT and DPOS (Topcuoglu et al. 2002, Section 5).

Ops are taken by upward rank. If the device of an op is undecided, the op goes to the device with
the earliest finish time. On its device, an op is inserted into the earliest idle slot that is long
enough and begins after all its inputs have arrived. Transfers take time but never wait for each
other, as in both papers. The first op of a colocation group decides the device of the whole group.

The handle of a variable and its reads have no predecessors outside of their colocation group. So
their earliest finish time does not depend on where the variable is used. They do not decide the
device of their group. They are placed together with the first op that consumes one of their
outputs, on the device where that op has its earliest finish time. The papers have no such rule, as
each op is placed alone.
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

# Reduces costs on several devices, or pairs of devices, to one cost for each op, or edge.
Reduction = Callable[[Iterable[FloatArray]], FloatArray]


def mean(costs_us: Iterable[FloatArray]) -> FloatArray:
    """Return the mean of cost arrays in us, element by element; HEFT uses it."""
    total, number = np.zeros(()), 0
    for cost_us in costs_us:
        total, number = total + cost_us, number + 1
    return total / number


def largest(costs_us: Iterable[FloatArray]) -> FloatArray:
    """Return the maximum of cost arrays in us, element by element; DPOS uses it."""
    return reduce(np.maximum, costs_us)


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a graph: one for each tensor and consumer, and one for each control edge.

    tail, head: ops, `[num_edges]`.
    num_bytes: size of the tensor, `[num_edges]`.
    is_signal: whether the edge crosses devices as a signal, `[num_edges]`.
    """

    tail: IntArray
    head: IntArray
    num_bytes: IntArray
    is_signal: BoolArray

    @classmethod
    def of(cls, problem: Problem) -> "Edges":
        """Return the edges of a problem: data first, then control edges."""
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
class IdealSchedule:
    """A schedule in the model of the papers, in which transfers never queue: `[num_ops]` each."""

    device: IntArray
    start_us: FloatArray
    end_us: FloatArray

    @property
    def makespan_us(self) -> float:
        """End of the last op."""
        return float(self.end_us.max(initial=0.0))


def upward_rank(problem: Problem, edges: Edges, reduction: Reduction) -> FloatArray:
    """Return rank_i = w_i + max over successors j of (c_ij + rank_j) in us, `[num_ops]`.

    w_i is the mean (or largest) time of i over the devices that may run it. c_ij is the mean (or
    largest) transfer time over the pairs of different devices that may run i and j. c_ij is 0 if
    there is no such pair, and within a colocation group.
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
) -> IdealSchedule:
    """Place all ops in order of upward rank, ties in topological order.

    Args:
        problem: the problem.
        edges: the edges of the problem.
        rank: upward ranks, `[num_ops]`.
        decided: the device of each colocation group, or -1 if it is undecided, `[num_groups]`.
        memory_bytes: memory that each group uses throughout the step, `[num_groups]`. A device
            without enough free memory is used only if no device has enough.
    """
    machine = problem.machine
    topological = problem.graph.topological_order
    order = topological[np.argsort(-rank[topological], kind="stable")]
    is_kept = (decided >= 0) | problem.has_choice
    decided = np.where(is_kept, decided, problem.group_allowed.argmax(axis=1))
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
    return IdealSchedule(device, start_us, end_us)


def _crossing_us(
    problem: Problem, edges: Edges, rows: IntArray, pairs: list[tuple[int, int]]
) -> Iterator[FloatArray]:
    """Yield the transfer times of some edges in us, `[num_rows]`, for each pair of devices.

    rows: indices of the edges.
    """
    machine, is_signal = problem.machine, edges.is_signal[rows]
    for sent_us in machine.transfers_us(edges.num_bytes[rows], pairs):
        yield np.where(is_signal, machine.signal_us, sent_us)


def _offsets(ends: IntArray, num_ops: int) -> IntArray:
    """Return the row offsets of edges that are sorted by tail or by head, `[num_ops + 1]`."""
    return np.append(0, np.cumsum(np.bincount(ends, minlength=num_ops)))
