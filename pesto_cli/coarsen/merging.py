"""The two ways to choose what is merged: as the paper does, and with parallelism kept."""

from collections.abc import Callable, Mapping

import numpy as np

from pesto_cli.coarsen.batch import Pairs, matching, mergeable_edges, siblings
from pesto_cli.coarsen.leftover import leftover_pairs
from pesto_cli.coarsen.paths import heights, longest_paths
from pesto_cli.coarsen.pressure import pressure_us, within
from pesto_cli.coarsen.quotient import Quotient
from pesto_cli.graph import FloatArray

FIRST_CAP = 2.0  # times the mean work of a node
CAP_GROWTH = 1.5
SIB=True

def keep_parallel(quotient: Quotient, num_nodes: int, free_us: float) -> Quotient:
    """Put off merges that lengthen the makespan's lower bound; then take those that do so least.

    Larger tensors first among pairs whose pressure is at most `limit_us`, and whose node (or group,
    where the merge joins two) has at most `cap_us` of work. The limit is `free_us` until nothing
    more fits, and so keeps the nodes small for as long as it can; then it rises to the pressure of
    the 1/32 of what is missing that lengthens least.
    """
    limit_us = free_us * (1 + 1e-9)  # sums of doubles in another order differ by rounding
    cap_us = min(limit_us, FIRST_CAP * float(quotient.work_us.sum()) / num_nodes)
    while quotient.num_nodes > num_nodes:
        missing = quotient.num_nodes - num_nodes
        height, paths = heights(quotient), longest_paths(quotient)
        pairs = mergeable_edges(quotient, height)
        if SIB: pairs=pairs.and_then(siblings(quotient, height))
        else:
            pr = pressure_us(quotient, paths, pairs)
            if not ((pr<=limit_us)&(joint_work_us(quotient,pairs)<=cap_us)).any():
                pairs=pairs.and_then(siblings(quotient, height))
        if len(pairs) == 0:
            batch = leftover_pairs(quotient, height, paths)
            if len(batch) == 0:
                break
        else:
            pressure = pressure_us(quotient, paths, pairs)
            fits = np.flatnonzero((pressure <= limit_us) & (joint_work_us(quotient, pairs) <= cap_us))
            if len(fits) == 0 and cap_us < limit_us:
                cap_us = min(CAP_GROWTH * cap_us, limit_us)
                continue
            if len(fits) == 0:
                rank = min(missing // 32, len(pairs) - 1)
                cap_us = limit_us = float(np.partition(pressure, rank)[rank])
                continue
            order = fits[np.lexsort((pressure[fits], -pairs.weight_bytes[fits]))]
            batch = pairs[order]
            batch = within(quotient, batch[matching(quotient, height, batch, cap_us)], limit_us)
        quotient = quotient.merged(batch.first[:missing], batch.second[:missing])
    return quotient


def joint_work_us(quotient: Quotient, pairs: Pairs) -> FloatArray:
    """`[num_pairs]`: work of the merged node, or of the group that the merge makes of two."""
    u, v = pairs.first, pairs.second
    one, other = quotient.group[u], quotient.group[v]
    node_us = quotient.work_us[u] + quotient.work_us[v]
    group_us = quotient.group_work_us[one] + quotient.group_work_us[other]
    return np.where(one == other, node_us, group_us)


def plain(quotient: Quotient, num_nodes: int) -> Quotient:
    """Larger tensors first, within caps on a node's work and members (Section 3.3).

    The caps are those of the authors' program, which also raises them when nothing fits.
    """
    cap_us, cap_members = 12_000.0, 80.0
    while quotient.num_nodes > num_nodes:
        height = heights(quotient)
        pairs = mergeable_edges(quotient, height)
        if len(pairs) == 0:
            break
        work = quotient.work_us[pairs.first] + quotient.work_us[pairs.second]
        members = quotient.num_members[pairs.first] + quotient.num_members[pairs.second]
        fits = np.flatnonzero((work < cap_us) & (members < cap_members))
        if len(fits) == 0:
            cap_us, cap_members = cap_us+1000, cap_members+1
            continue
        order = fits[np.argsort(-pairs.weight_bytes[fits], kind="stable")]
        batch = pairs[order]
        batch = batch[matching(quotient, height, batch, np.inf)]
        missing = quotient.num_nodes - num_nodes
        quotient = quotient.merged(batch.first[:missing], batch.second[:missing])
    return quotient
