"""Merging that keeps parallelism: merges that would lengthen the makespan are postponed."""

import numpy as np

from pesto_cli.bounds import critical_path_us, load_us
from pesto_cli.coarsen.batch import mergeable_edges, siblings, verdicts
from pesto_cli.coarsen.leftover import leftover_pairs
from pesto_cli.coarsen.paths import heights, longest_paths
from pesto_cli.coarsen.pressure import joint_work_us, pressure_us, within
from pesto_cli.coarsen.quotient import Quotient
from pesto_cli.coarsen.rounds import MergeVerdict, OnRound, Round, ignore_round
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.problem import Problem

# Found by coarsening RNNLM-2-2048 and Transformer-6-16-2048 to 200 nodes and annealing the result.
FIRST_CAP = 4.0  # times the mean work of a node
CAP_GROWTH = 1.5
LIMIT_GROWTH = 1.04
MAX_ROUNDS_LEFT = 25  # a round that merges fewer than 1/25 of the remaining merges is too slow
ROUNDING = 1e-9  # sums of doubles depend on the order of the terms


def merge_keeping_parallel(
    problem: Problem, num_nodes: int, on_round: OnRound = ignore_round
) -> Quotient:
    """Merge batches by Theorem 3.5 until `num_nodes` are left, larger tensors first.

    The candidates of a round are

        { (u, v) : pressure(u, v) <= limit  and  joint_work(u, v) <= cap }

    The limit starts halfway between the critical path and the lower bound. If the critical path of
    the nodes reached the lower bound, their order would leave no freedom. The cap keeps the work of
    nodes similar. When few candidates are left, first the cap rises up to the limit, then the limit
    rises.
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
            work = joint_work_us(quotient, pairs)
            pressure = pressure_us(quotient, paths, pairs, work)
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
    """Return (limit, cap) with a higher cap, or with a higher limit if the cap has reached it.

    A new limit is at least `least_us`.
    """
    if cap_us < limit_us:
        return limit_us, min(CAP_GROWTH * cap_us, limit_us)
    limit_us = max(LIMIT_GROWTH * limit_us, least_us)
    return limit_us, limit_us


def _shares_bytes(problem: Problem) -> FloatArray:
    """Return each tensor's bytes divided by its number of consumers, `[num_consumers]`.

    A tensor is sent once to a device, however many consumers run there. So one remote consumer less
    saves only a share of the bytes.
    """
    graph = problem.graph
    num_consumers = np.diff(graph.consumer_offsets)[graph.consumer_tensor]
    return graph.tensor_bytes[graph.consumer_tensor] / num_consumers
