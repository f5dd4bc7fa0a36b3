"""Merging that keeps parallelism: what would lengthen the makespan is put off."""

import numpy as np

from pesto_cli.bounds import critical_path_us, load_us
from pesto_cli.coarsen.batch import mergeable_edges, siblings, verdicts
from pesto_cli.coarsen.leftover import leftover_pairs
from pesto_cli.coarsen.paths import heights, longest_paths
from pesto_cli.coarsen.pressure import joint_work_us, pressure_us, within
from pesto_cli.coarsen.quotient import Quotient
from pesto_cli.coarsen.rounds import MergeVerdict, OnRound, Round, unheard
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.problem import Problem

# Found by coarsening RNNLM-2-2048 and Transformer-6-16-2048 to 200 nodes and annealing the result.
FIRST_CAP = 4.0  # times the mean work of a node
CAP_GROWTH = 1.5
LIMIT_GROWTH = 1.04
MAX_ROUNDS_LEFT = 25  # a round that merges less than this share of what is missing is too slow
ROUNDING = 1e-9  # sums of doubles in another order differ


def merge_keeping_parallel(
    problem: Problem, num_nodes: int, on_round: OnRound = unheard
) -> Quotient:
    """Merge batches by Theorem 3.5 until `num_nodes` are left, larger tensors first.

    What may be merged at a time are

        { (u, v) : pressure(u, v) <= limit  and  joint_work(u, v) <= cap }

    The limit starts halfway from the critical path to the lower bound: nodes whose critical path
    fills the bound leave no order to choose. The cap keeps nodes even. When few pairs are left,
    first the cap rises to the limit, then the limit itself.
    """
    quotient = Quotient.of(problem, _shares_bytes(problem))
    path_us = critical_path_us(problem)
    free_us = (path_us + max(path_us, load_us(problem))) / 2
    limit_us = free_us * (1 + ROUNDING)
    cap_us = min(limit_us, FIRST_CAP * float(quotient.work_us.sum()) / num_nodes)
    while quotient.num_nodes > num_nodes:
        missing = quotient.num_nodes - num_nodes
        height, paths = heights(quotient), longest_paths(quotient)
        pairs = mergeable_edges(quotient, height).and_then(siblings(quotient, height))
        if len(pairs) > 0:
            pressure = pressure_us(quotient, paths, pairs)
            work = joint_work_us(quotient, pairs)
            while not (fits := (pressure <= limit_us) & (work <= cap_us)).any():
                limit_us, cap_us = _relaxed(limit_us, cap_us, float(pressure.min()))
            allowed_us = limit_us, cap_us
            verdict = np.where(pressure <= limit_us, MergeVerdict.CAPPED, MergeVerdict.TOO_LONG)
            through = np.maximum(paths.through[pairs.first], paths.through[pairs.second])
            lengthening = pressure - through
            order = np.flatnonzero(fits)
            order = order[np.lexsort((pressure[order], -pairs.weight_bytes[order]))]
            verdict[order] = verdicts(quotient, height, pairs[order], cap_us)
            order = order[verdict[order] == MergeVerdict.MERGED]
            verdict[order] = MergeVerdict.TOO_LONG_TOGETHER
            order = order[within(quotient, pairs[order], lengthening[order], limit_us)]
            if len(order) < missing / MAX_ROUNDS_LEFT:
                limit_us, cap_us = _relaxed(limit_us, cap_us)
        else:
            pairs = leftover_pairs(quotient, height, paths)
            order = np.arange(len(pairs))
            verdict, allowed_us = np.empty_like(order), (np.inf, np.inf)
        if len(order) == 0:
            break
        verdict[order] = MergeVerdict.NOT_NEEDED
        verdict[order[:missing]] = MergeVerdict.MERGED
        merged = quotient.merged(pairs[order[:missing]])
        on_round(Round(quotient, height, pairs, verdict, *allowed_us, merged))
        quotient = merged
    return quotient


def _relaxed(limit_us: float, cap_us: float, least_us: float = 0.0) -> tuple[float, float]:
    """A higher cap, or where it is as high as the limit, a higher limit of at least `least_us`."""
    if cap_us < limit_us:
        return limit_us, min(CAP_GROWTH * cap_us, limit_us)
    limit_us = max(LIMIT_GROWTH * limit_us, least_us)
    return limit_us, limit_us


def _shares_bytes(problem: Problem) -> FloatArray:
    """`[num_consumers]`: a tensor's bytes, shared by its consumers.

    It is sent once to a device however many wait there, so one consumer less saves only a share.
    """
    graph = problem.graph
    num_consumers = np.diff(graph.consumer_offsets)[graph.consumer_tensor]
    return graph.tensor_bytes[graph.consumer_tensor] / num_consumers
