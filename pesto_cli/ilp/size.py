"""The size of a model, computed from a problem before the model is built.

A tensor may be sent from any device of its producer to any device of its consumers. So the size of
a model grows with the square of the number of devices.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem

# CP-SAT takes 0.8 kB of memory for a constraint, so 0.8 GB at this limit.
MOST_CONSTRAINTS = 1_000_000
# A constraint takes 5 us to build, so half of the time remains for the search.
CONSTRAINTS_PER_S = 100_000
# Allowed for any time limit, as they take only half a second. 200 nodes on five devices have fewer.
LEAST_CONSTRAINTS = 100_000


@dataclass(frozen=True)
class Size:
    """Upper bounds on the size of a model, without the constraints for pairs in `milp`.

    variables: number of variables S, C and x of ops, S, C and z of transfers, and C_max.
    constraints: number of constraints of all families and of intervals of CP-SAT.
    transfers: size of the set K.
    """

    variables: int
    constraints: int
    transfers: int

    @classmethod
    def of(cls, problem: Problem, *, balance: bool = False) -> Self:
        """Count the constraints (1) to (9) of `cpsat`; `milp` has no more of them.

        With a_i devices of op i, s_k sources and c_k consumers of transfer k:

            variables    sum_i (2 + a_i) + sum_k (2 + s_k) + 1
            constraints  edges + sum_k (1 + c_k) + signals' a_i       (1)
                         sum_i a_i + sinks                            (2), (3)
                         devices + sum_i a_i                          (4)
                         sum_k s_k (2 + c_k)                          (5)
                         sum_k (1 + s_k) + channels + sum_k s_k       (6), (7)
                         devices + balanced pairs                     (8)
                         ops + sum_i a_i, and devices by symmetry     (9)
        """
        graph, machine, allowed = problem.graph, problem.machine, problem.allowed
        group, producer = graph.colocation_group, graph.tensor_producer
        of_op = allowed.sum(axis=1)
        crosses = ~graph.consumer_on_host & (
            group[graph.consumers] != group[producer[graph.consumer_tensor]]
        )
        takers = np.zeros((graph.num_tensors, problem.num_devices), dtype=np.int64)
        np.add.at(takers, graph.consumer_tensor[crosses], allowed[graph.consumers[crosses]])
        sources = of_op[producer, None] - allowed[producer]
        is_transfer = (takers > 0) & (sources > 0)
        takers, sources = takers[is_transfer], sources[is_transfer]
        num_signals = of_op[graph.control_edges[:, 0]].sum() + (
            of_op[producer[graph.consumer_tensor[graph.consumer_on_host]]].sum()
        )
        num_x, num_z, num_transfers = of_op.sum(), sources.sum(), len(sources)
        constraints = (
            len(graph.edges) + num_transfers + takers.sum() + num_signals
            + num_x + problem.num_ops
            + problem.num_devices + num_x
            + 2 * num_z + (sources * takers).sum()
            + num_transfers + num_z + len(machine.channel_names) + num_z
            + problem.num_devices + balance * problem.num_devices**2
            + problem.num_ops + num_x + problem.num_devices
        )  # fmt: skip
        variables = 2 * problem.num_ops + num_x + 2 * num_transfers + num_z + 1
        return cls(int(variables), int(constraints), num_transfers)

    def excess(self, limits: Limits) -> str:
        """Return why the model is too large to be built; empty if it is not too large.

        In deterministic mode only memory counts, as time is not measured.
        """
        most = MOST_CONSTRAINTS
        if not limits.deterministic:
            in_time = int(CONSTRAINTS_PER_S * limits.time_limit_s)
            most = min(most, max(LEAST_CONSTRAINTS, in_time))
        if self.constraints <= most:
            return ""
        return (
            f"it would have {self.constraints:,} constraints, and the limit for this time and "
            f"memory is {most:,}"
        )
