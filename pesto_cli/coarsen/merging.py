"""The two ways to choose what is merged: as the paper does, and with parallelism kept."""

from collections.abc import Callable, Mapping

import numpy as np

from pesto_cli.coarsen.batch import Pairs, matching, mergeable_edges, siblings
from pesto_cli.coarsen.paths import heights, longest_paths
from pesto_cli.coarsen.pressure import pressure_us, within
from pesto_cli.coarsen.quotient import Quotient
from pesto_cli.graph import FloatArray

Merging = Callable[[Quotient, int], Quotient]


def keep_parallel(quotient: Quotient, num_nodes: int) -> Quotient:
    """Put off merges that lengthen the makespan's lower bound; then take those that do so least.

    A merge is free while its pressure stays within max(critical path, work per device, work of the
    largest group). Free merges are taken larger tensors first.
    """
    limit_us = lower_bound_us(quotient)
    cap_us = CAPF * quotient.work_us.sum() / num_nodes
    while quotient.num_nodes > num_nodes:
        height = heights(quotient)
        missing = quotient.num_nodes - num_nodes
        pairs = candidates(quotient, height)
        if len(pairs) == 0:
            break
        pressure = pressure_us(quotient, longest_paths(quotient), pairs)
        one, other = quotient.group[pairs.first], quotient.group[pairs.second]
        work = np.where(one == other, quotient.work_us[pairs.first] + quotient.work_us[pairs.second],
           quotient.group_work_us[one] + quotient.group_work_us[other])
        ok = (pressure <= limit_us) & (work <= cap_us)
        if not ok.any():
            if cap_us < limit_us:
                cap_us *= 1.5
            else:
                limit_us = np.sort(pressure)[min(len(pressure) - 1, missing // 32)]
                cap_us = max(cap_us, work[pressure <= limit_us].min()*1.000001)
            continue
        order = np.flatnonzero(ok)
        order = order[np.lexsort((pressure[order], -pairs.weight_bytes[order]))]
        batch = pairs[order]
        batch = batch[matching(quotient, height, batch, cap_us)]
        batch = within(quotient, batch, limit_us)
        quotient = quotient.merged(batch.first[:missing], batch.second[:missing])
    return quotient
CAPF=2.0

def candidates(q, h):
    e, s = mergeable_edges(q, h), siblings(q, h)
    return Pairs(np.concatenate((e.first, s.first)), np.concatenate((e.second, s.second)), np.concatenate((e.weight_bytes, s.weight_bytes)))


def lower_bound_us(quotient: Quotient) -> float:
    """max(critical path, work per device, work of the largest group)."""
    able = quotient.group_allowed
    load = 0.0
    for mask in np.unique(able, axis=0):
        inside = ~(able & ~mask).any(axis=1)
        load = max(load, float(quotient.group_work_us[inside].sum()) / mask.sum())
    return max(longest_paths(quotient).critical_us, load, quotient.group_work_us.max(initial=0.0))


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
