"""The times of the ops of a split graph."""

from collections import defaultdict

import numpy as np

from pesto_cli.data.columns import FloatArray
from pesto_cli.data.parts import Parts
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.expansion import Expansion


def split_times_us(problem: Problem, parts: Parts, expansion: Expansion) -> FloatArray:
    """Return the time of each op of an expansion on each device kind, `[num_ops, num_kinds]`.

    A part takes its ratio of the time of the whole op. An added op can run where the op can run
    whose output it converts. If this op can run on no GPU (a feed is in host memory), or the added
    op has no time there, the added op can run wherever it has a time.

    Raises:
        BadInputError: the profile has no price for a part.
    """
    ops = expansion.ops
    serves = np.array([ops.serves[op] for op in expansion.kept], dtype=np.int64)
    time_us = problem.time_us[serves]
    on_gpu = np.array([problem.machine.device_type(kind) == "GPU" for kind in problem.kinds])
    alike = defaultdict[tuple[OpSpec | int, str, int], list[int]](list)  # ops with equal prices
    spec_of = parts.spec_of.tolist()
    for index, op in enumerate(expansion.kept):
        spec, origin = ops.specs[op], ops.origin[op]
        if spec is not None and ops.is_priced[op]:
            decision = expansion.decided[origin]
            key = spec_of[origin], decision.alternative.name, decision.sizes[ops.part[op]]
            alike[key].append(index)
        elif spec is not None:
            alike[spec, "", 0].append(index)
    for (price, name, size), rows in alike.items():
        if isinstance(price, OpSpec):
            added_us, was_us = parts.added_us(price), time_us[rows]
            there_us = np.where(np.isnan(was_us), np.nan, added_us)
            on_no_gpu = np.all(np.isnan(was_us[:, on_gpu]), axis=1)
            is_anywhere = on_no_gpu | np.all(np.isnan(there_us), axis=1)
            time_us[rows] = np.where(is_anywhere[:, None], added_us, there_us)
        else:
            origin = ops.origin[expansion.kept[rows[0]]]
            whole = expansion.decided[origin].alternative.size
            share = 1.0 if whole is None else size / whole
            time_us[rows] *= parts.part_ratio(origin, name, share)
    return time_us
