"""What ops take of a device's memory, for strategies that know of no instant at which it is full.

What a device holds at a time depends on an order that is not known while ops are placed. So memory
is counted as in FastT and in Baechi's static model, as a sum that only grows.
"""

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.problem import Problem


def memory_bytes(problem: Problem, output_share: float) -> FloatArray:
    """`[num_groups]`: variables for good, and a share of all outputs."""
    graph = problem.graph
    outputs = np.where(graph.alias_source < 0, graph.held_bytes, 0)
    of_op = graph.resident_bytes + output_share * np.bincount(
        graph.tensor_producer, outputs, minlength=graph.num_ops
    )
    need: FloatArray = np.bincount(
        graph.colocation_group, of_op, minlength=graph.num_groups
    ).astype(np.float64)
    return need
