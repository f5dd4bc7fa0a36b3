"""Samples of op times and delays, which all evaluations of a robust search share.

As all schedules are evaluated with the same random numbers, a difference between two means is a
difference between the schedules, and hardly one between samples.
"""

from typing import NamedTuple, Self

import numpy as np

from pesto_cli.coarsen import Coarsening
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.schedule import Placement
from pesto_cli.evaluation.sampling import sampled_graphs
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.simulator.columns import KernelGraph
from pesto_cli.kernels import kernel


class Samples(NamedTuple):
    """Op times and delays of a problem in each sample; without samples, the search is not robust.

    duration_us: `[num_samples, num_ops, num_devices]`.
    delay_factor: `[num_samples, 2, num_tensors + num_ops]`; see `KernelGraph`.
    """

    duration_us: FloatArray
    delay_factor: FloatArray

    @classmethod
    def none(cls) -> Self:
        """Return no samples."""
        return cls(np.zeros((0, 0, 0)), np.zeros((0, 2, 0)))

    @classmethod
    def drawn(cls, simulator: Simulator, deviation: FloatArray, count: int, seed: int) -> Self:
        """Return random samples of the simulator's problem; see `sampled_graphs`."""
        graphs = list(sampled_graphs(simulator.kernel_graph, deviation, count, seed))
        return cls(
            np.stack([graph.duration_us for graph in graphs]),
            np.stack([graph.delay_factor for graph in graphs]),
        )

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return len(self.duration_us)

    def mean_us(self, simulator: Simulator, placement: Placement) -> float:
        """Return the mean makespan of replays of a placement in us."""
        times = zip(self.duration_us, self.delay_factor, strict=True)
        graphs = (
            simulator.kernel_graph._replace(duration_us=duration_us, delay_factor=delay_factor)
            for duration_us, delay_factor in times
        )
        return float(np.mean([simulator.replay_us(placement, graph) for graph in graphs]))

    def of_nodes(self, coarsening: Coarsening) -> Self:
        """Return the samples of a coarse problem: the time of a node is the sum of its members.

        Its tensors are merged, so they have delays of their own.
        """
        graph, num_samples = coarsening.problem.graph, self.num_samples
        duration_us = np.zeros((num_samples, graph.num_ops, self.duration_us.shape[2]))
        for sample in range(num_samples):
            np.add.at(duration_us[sample], coarsening.node_of_op, self.duration_us[sample])
        size = (num_samples, 2, graph.num_tensors + graph.num_ops)
        return type(self)(duration_us, np.random.default_rng(0).uniform(0.0, 2.0, size))


@kernel
def sampled_graph(graph: KernelGraph, samples: Samples, sample: int) -> KernelGraph:
    """Return the graph with the op times and delays of a sample."""
    return KernelGraph(
        duration_us=samples.duration_us[sample],
        op_tensors=graph.op_tensors,
        tensor_bytes=graph.tensor_bytes,
        consumer_offsets=graph.consumer_offsets,
        consumers=graph.consumers,
        consumer_on_host=graph.consumer_on_host,
        control_offsets=graph.control_offsets,
        control_successors=graph.control_successors,
        delay_factor=samples.delay_factor[sample],
        slow_down=graph.slow_down,
    )
