"""Merging as in the paper: larger tensors first, whatever the effect on the critical path."""

import numpy as np

from pesto_cli.coarsen.batch import mergeable_edges, verdicts
from pesto_cli.coarsen.paths import heights
from pesto_cli.coarsen.quotient import Quotient
from pesto_cli.coarsen.rounds import MergeVerdict, OnRound, Round, ignore_round
from pesto_cli.data.problem import Problem

# Caps on a node, and how much they rise when no pair fits, as in the authors' program.
MAX_WORK_US, MAX_MEMBERS = 12_000.0, 80
WORK_STEP_US, MEMBERS_STEP = 1_000.0, 1


def merge_plainly(problem: Problem, num_nodes: int, on_round: OnRound = ignore_round) -> Quotient:
    """Merge batches of edges by Theorem 3.5 until `num_nodes` are left (Pesto, Section 3.3).

    Stop early if no edge meets the conditions of the theorem between nodes that can share a device.
    Unlike the authors' program, which may merge below `num_nodes`, cut the last batch to size.
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
        rises = np.maximum(work_us - max_work_us, 0) // WORK_STEP_US + (work_us >= max_work_us)
        rises = np.maximum(rises, (members - max_members) // MEMBERS_STEP + 1).min()
        max_work_us += rises * WORK_STEP_US
        max_members += int(rises) * MEMBERS_STEP
        fits = (work_us < max_work_us) & (members < max_members)
        verdict = np.full(len(pairs), MergeVerdict.CAPPED, dtype=np.int64)
        order = np.flatnonzero(fits)
        order = order[np.argsort(-pairs.weight_bytes[order], kind="stable")]
        verdict[order] = verdicts(quotient, height, pairs[order])
        order = order[verdict[order] == MergeVerdict.MERGED]
        verdict[order] = MergeVerdict.NOT_NEEDED
        order = order[: quotient.num_nodes - num_nodes]
        verdict[order] = MergeVerdict.MERGED
        merged = quotient.merged(pairs[order])
        on_round(Round(quotient, height, pairs, verdict, np.inf, max_work_us, merged))
        quotient = merged
    return quotient
