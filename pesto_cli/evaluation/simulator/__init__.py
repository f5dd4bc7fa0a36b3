"""The event-driven simulator: schedules of a placement and an order, by the execution model.

At each instant all ends and arrivals are handled first. Then each idle device, in index order,
starts its ready op of highest priority; ties go to the lowest op index. Ops of zero time end at the
instant at which they start, so this repeats until nothing more happens. Only then the tensors that
were produced at this instant queue on their links, by (producer, tensor, destination). Links are
first come, first served, so a transfer's times are known when it queues. The ops that run on the
sender and on the receiver while a transfer is on its link end later by the transfer overhead
(`CommModel`). If the link has a `wait_us`, an endpoint that computes delays the transfer until it
is idle, for `wait_us` at most: the sender delays the queueing, and the receiver delays the moment
from which consumers can take the tensor. Signals have overheads and delays too, but use no link.
"""

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule, Transfers
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.memory import peak_bytes
from pesto_cli.evaluation.simulator.columns import KernelGraph, KernelMachine, num_awaited
from pesto_cli.evaluation.simulator.kernel import Simulated, simulate
from pesto_cli.evaluation.simulator.paths import longest_tails, transfers_us

__all__ = [
    "Simulator",
    "list_schedule",
    "longest_tails",
    "replay",
    "simulate",
    "transfers_us",
    "upward_rank",
]


class Simulator:
    """A problem in the form of kernel arguments; use one for many simulations of a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.kernel_graph = KernelGraph.of(problem)
        self.kernel_machine = KernelMachine.of(problem.machine)
        self.kernel_waits = num_awaited(problem)
        self.kernel_first = problem.is_given

    def list_schedule(self, device: IntArray, priority: FloatArray) -> Schedule:
        """Return the list schedule: idle devices start the ready op of highest priority.

        Args:
            device: `[num_ops]`, a device that may run each op.
            priority: `[num_ops]`.
        """
        return self._schedule(device, -priority, strict=False)

    def makespan_us(self, device: IntArray, priority: FloatArray) -> float:
        """Return the makespan of `list_schedule` in us, without building the schedule."""
        times = self._run(device, -priority, strict=False).times
        return float(times.end_us.max(initial=0.0))

    def replay(self, placement: Placement) -> Schedule:
        """Return the schedule in which every device runs its ops strictly in rank order.

        Raises:
            BadInputError: the order contradicts precedence, which is a deadlock.
        """
        return self._schedule(placement.device, placement.rank, strict=True)

    def replay_us(self, placement: Placement, graph: KernelGraph) -> float:
        """Return the makespan of a replay in us, with the op times and delays of `graph`."""
        times = self._run(placement.device, placement.rank, strict=True, graph=graph).times
        return float(times.end_us.max(initial=0.0))

    def upward_rank(self, device: IntArray | None = None) -> FloatArray:
        """Return the longest path in us from each op's start to the end of the graph, `[num_ops]`.

        With a placement (`device`), paths have the durations on its devices, and transfers without
        queueing. Without, they have the durations on the fastest device and no transfers. This is
        the upward rank of HEFT (Topcuoglu et al., 2002).
        """
        duration_us, order = self.problem.min_duration_us, self.problem.graph.topological_order
        if device is None:
            device = np.zeros(self.problem.num_ops, dtype=np.int64)
        else:
            duration_us = self.problem.duration_us[np.arange(self.problem.num_ops), device]
        rank: FloatArray = longest_tails(
            order, duration_us, self.kernel_graph, self.kernel_machine, device
        )
        return rank

    def _run(
        self,
        device: IntArray,
        key: FloatArray | IntArray,
        *,
        strict: bool,
        graph: KernelGraph | None = None,
    ) -> Simulated:
        """Simulate; ops of lower key run first, and those of `kernel_first` before all others."""
        # The kernel is compiled once more, which takes 20 s, for each other type of array.
        device = np.ascontiguousarray(device, dtype=np.int64)
        key = np.ascontiguousarray(key, dtype=np.float64)
        if self.kernel_first.any():
            key = np.where(self.kernel_first, -np.inf, key)
        # The ops of every device in rank order, one device after the other.
        queue = np.lexsort((key, device)) if strict else np.empty(0, dtype=np.int64)
        result: Simulated = simulate(
            graph or self.kernel_graph,
            self.kernel_machine,
            self.kernel_waits,
            device,
            key,
            queue,
            key,
            np.inf,
        )
        return result

    def _schedule(self, device: IntArray, key: FloatArray | IntArray, *, strict: bool) -> Schedule:
        rank, times = self._run(device, key, strict=strict)
        if (rank < 0).any():
            raise BadInputError(self._deadlock(device, key, rank))
        # The columns may be parts of longer arrays.
        tensor, dst = times.tensor.copy(), times.dst.copy()
        transfers = Transfers(tensor, dst, times.sent_us.copy(), times.arrived_us.copy())
        peak = peak_bytes(self.problem, device, times.start_us, times.end_us, transfers)
        return Schedule(np.asarray(device), rank, times.start_us, times.end_us, transfers, peak)

    def _deadlock(self, device: IntArray, key: FloatArray | IntArray, rank: IntArray) -> str:
        """Return a message that names an op which can never start."""
        graph = self.problem.graph
        ahead: dict[int, int] = {}
        for op in np.lexsort((key, device)).tolist():
            if rank[op] < 0:
                ahead.setdefault(int(device[op]), op)
        blocked = graph.names[next(iter(ahead.values()))]
        return (
            f"the placement's order contradicts the graph: op {blocked!r} is next on its device, "
            "but never starts, because in the order an op comes before another op for which it has "
            "to wait; every op must come after its predecessors: solve the profile again."
        )


def list_schedule(problem: Problem, device: IntArray, priority: FloatArray) -> Schedule:
    """Return `Simulator.list_schedule`, for a single use."""
    return Simulator(problem).list_schedule(device, priority)


def replay(problem: Problem, placement: Placement) -> Schedule:
    """Return `Simulator.replay`, for a single use."""
    return Simulator(problem).replay(placement)


def upward_rank(problem: Problem, device: IntArray | None = None) -> FloatArray:
    """Return `Simulator.upward_rank`, for a single use."""
    return Simulator(problem).upward_rank(device)
