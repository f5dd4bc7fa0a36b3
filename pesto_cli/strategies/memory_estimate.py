"""An estimate of the memory of ops, for strategies that place ops without knowing their order.

The peak memory of a device depends on the execution order, which is not known while ops are placed.
So memory is a sum over the ops of a device, as in FastT and in Baechi's static model.
"""

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.problem import Problem


def memory_bytes(problem: Problem, output_share: float) -> FloatArray:
    """Return each group's memory in bytes: variables and a share of outputs, `[num_groups]`."""
    graph = problem.graph
    outputs = np.where(graph.alias_source < 0, graph.held_bytes, 0)
    of_op = graph.resident_bytes + output_share * np.bincount(
        graph.tensor_producer, outputs, minlength=graph.num_ops
    )
    need: FloatArray = np.bincount(
        graph.colocation_group, of_op, minlength=graph.num_groups
    ).astype(np.float64)
    return need
