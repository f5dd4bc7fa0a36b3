"""The times of the ops of a split graph."""

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
    ratios: dict[tuple[int, str, int], FloatArray] = {}
    added: dict[OpSpec, FloatArray] = {}
    for index, op in enumerate(expansion.kept):
        spec, origin = ops.specs[op], ops.origin[op]
        if spec is None:
            continue
        if ops.is_priced[op]:
            decision = expansion.decided[origin]
            alternative, size = decision.alternative, decision.sizes[ops.part[op]]
            key = (int(parts.spec_of[origin]), alternative.name, size)
            if key not in ratios:
                share = 1.0 if alternative.size is None else size / alternative.size
                ratios[key] = parts.part_ratio(origin, alternative.name, share)
            time_us[index] *= ratios[key]
        else:
            if spec not in added:
                added[spec] = parts.added_us(spec)
            there_us = np.where(np.isnan(time_us[index]), np.nan, added[spec])
            is_anywhere = np.isnan(time_us[index, on_gpu]).all() or np.isnan(there_us).all()
            time_us[index] = added[spec] if is_anywhere else there_us
    return time_us
