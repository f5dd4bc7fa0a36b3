"""Merging as the paper does it: larger tensors first, whatever the critical path."""

import numpy as np

from pesto_cli.coarsen.batch import matching, mergeable_edges
from pesto_cli.coarsen.paths import heights
from pesto_cli.coarsen.quotient import Quotient
from pesto_cli.problem import Problem

# What a node may grow to, and by how much that is raised when nothing fits: the authors' program.
MAX_WORK_US, MAX_MEMBERS = 12_000.0, 80
WORK_STEP_US, MEMBERS_STEP = 1_000.0, 1


def merge_plainly(problem: Problem, num_nodes: int) -> Quotient:
    """Merge batches of edges by Theorem 3.5 until `num_nodes` are left (Pesto, Section 3.3).

    Stops early where no edge meets the theorem's conditions or joins ops that may share a device.
    Departure from the authors' program, which overshoots: the last batch is cut to size.
    """
    graph = problem.graph
    quotient = Quotient.of(problem, graph.tensor_bytes[graph.consumer_tensor])
    max_work_us, max_members = MAX_WORK_US, MAX_MEMBERS
    while quotient.num_nodes > num_nodes:
        height = heights(quotient)
        pairs = mergeable_edges(quotient, height)
        if len(pairs) == 0:
            break
        work_us = quotient.work_us[pairs.first] + quotient.work_us[pairs.second]
        members = quotient.num_members[pairs.first] + quotient.num_members[pairs.second]
        while not (fits := (work_us < max_work_us) & (members < max_members)).any():
            max_work_us, max_members = max_work_us + WORK_STEP_US, max_members + MEMBERS_STEP
        pairs = pairs[fits]
        pairs = pairs[np.argsort(-pairs.weight_bytes, kind="stable")]
        batch = pairs[matching(quotient, height, pairs)]
        quotient = quotient.merged(batch[: quotient.num_nodes - num_nodes])
    return quotient
