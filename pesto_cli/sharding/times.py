"""The times of the ops of a split graph."""

import numpy as np

from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.parts import Parts
from pesto_cli.data.problem import Problem
from pesto_cli.sharding.expansion import Expansion


def split_times_us(problem: Problem, parts: Parts, expansion: Expansion) -> FloatArray:
    """Return the time of each op of an expansion on each device kind, `[num_ops, num_kinds]`.

    A part takes its ratio of the time of the whole op. An added op can run where the op can run
    whose output it converts. If this op can run on no GPU (a feed is in host memory), or the added
    op has no time there, the added op can run wherever it has a time.

    Raises:
        BadInputError: the profile has no price for a part.
    """
    ops, kept = expansion.ops, np.array(expansion.kept, dtype=np.int64)
    time_us: FloatArray = problem.time_us[np.array(ops.serves, dtype=np.int64)[kept]]
    has_spec = np.array([spec is not None for spec in ops.specs])[kept]
    is_part = has_spec & np.array(ops.is_priced)[kept]
    is_added = has_spec & ~is_part
    time_us[is_part] *= _ratios(parts, expansion, kept[is_part])
    time_us[is_added] = _added_us(problem, parts, expansion, kept[is_added], time_us[is_added])
    return time_us


def _ratios(parts: Parts, expansion: Expansion, new: IntArray) -> FloatArray:
    """Return the time of each part divided by that of its op, `[num_parts, num_kinds]`.

    new: the ops of the expansion that are parts.
    """
    ops, ratios, which = expansion.ops, list[FloatArray](), list[int]()
    number: dict[tuple[int, int], int] = {}  # of the decision, which ops that are alike share
    for op in new.tolist():
        origin = ops.origin[op]
        decision = expansion.decided[origin]
        size, whole = decision.sizes[ops.part[op]], decision.alternative.size
        key = id(decision), size
        if key not in number:
            number[key] = len(ratios)
            share = 1.0 if whole is None else size / whole
            ratios.append(parts.part_ratio(origin, decision.alternative.name, share))
        which.append(number[key])
    found: FloatArray = np.array(ratios).reshape(-1, len(parts.fallback.us))[which]
    return found


def _added_us(
    problem: Problem, parts: Parts, expansion: Expansion, new: IntArray, was_us: FloatArray
) -> FloatArray:
    """Return the time of each added op on each device kind, `[num_added, num_kinds]`.

    new: the ops of the expansion that are added. was_us: the times of the ops that they serve.
    """
    specs = [expansion.ops.specs[op] for op in new.tolist()]
    _, first, which = np.unique([*map(id, specs)], return_index=True, return_inverse=True)
    distinct = [spec for spec in map(specs.__getitem__, first) if spec is not None]
    added_us = np.array([*map(parts.added_us, distinct)]).reshape(-1, len(parts.fallback.us))[which]
    there_us = np.where(np.isnan(was_us), np.nan, added_us)
    on_gpu = np.array([problem.machine.device_type(kind) == "GPU" for kind in problem.kinds])
    on_no_gpu = np.all(np.isnan(was_us[:, on_gpu]), axis=1)
    is_anywhere = on_no_gpu | np.all(np.isnan(there_us), axis=1)
    found: FloatArray = np.where(is_anywhere[:, None], added_us, there_us)
    return found
