"""The times of the ops of a split graph."""

from collections.abc import Mapping

import numpy as np

from pesto_cli.data.columns import BoolArray, FloatArray, IntArray
from pesto_cli.data.parts import Parts
from pesto_cli.data.problem import Problem
from pesto_cli.sharding.alternative import has_main_op
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.expansion import Expansion


def split_times_us(problem: Problem, parts: Parts, expansion: Expansion) -> FloatArray:
    """Return the time of each op of an expansion on each device kind, `[num_ops, num_kinds]`.

    A part takes its ratio of the time of the whole op. An added op can run where the op can run
    whose output it converts. If this op can run on no GPU (a feed is in host memory), or the added
    op has no time there, the added op can run wherever it has a time.

    Raises:
        BadInputError: the profile has no price for a part.
    """
    time_us: FloatArray = problem.time_us[expansion.serves]
    has_spec = expansion.spec_of >= 0
    is_part, is_added = has_spec & expansion.is_priced, has_spec & ~expansion.is_priced
    op, part = expansion.origin[is_part], expansion.part[is_part]
    time_us[is_part] *= _ratios(parts, expansion.decided, op, part)
    time_us[is_added] = _added_us(problem, parts, expansion, is_added, time_us[is_added])
    return time_us


def check_priced(parts: Parts, op: int, decision: Decision) -> None:
    """Check that all parts of an op have prices; parts that consist of added ops need none.

    Raises:
        BadInputError: see `Parts.part_ratio`.
    """
    size = decision.alternative.size
    if size is not None and has_main_op(decision.spec, decision.alternative):
        parts.part_ratio(op, decision.alternative.name, min(decision.sizes) / size)


def _ratios(
    parts: Parts, decided: Mapping[int, Decision], op: IntArray, part: IntArray
) -> FloatArray:
    """Return the time of each part divided by that of its op, `[num_parts, num_kinds]`.

    op, part: the op of each part, and its index.
    """
    ratios: list[FloatArray] = []
    first: dict[int, int] = {}  # the row of the first part of a decision, which alike ops share
    first_of_op = np.zeros(max(decided, default=-1) + 1, dtype=np.int64)
    for each in np.unique(op).tolist():
        decision = decided[each]
        if id(decision) not in first:
            first[id(decision)] = len(ratios)
            name, whole = decision.alternative.name, decision.alternative.size
            of_size = {
                size: parts.part_ratio(each, name, size / (whole or size))
                for size in {*decision.sizes}
            }
            ratios += map(of_size.__getitem__, decision.sizes)
        first_of_op[each] = first[id(decision)]
    found: FloatArray = np.array(ratios).reshape(-1, len(parts.fallback.us))[first_of_op[op] + part]
    return found


def _added_us(
    problem: Problem, parts: Parts, expansion: Expansion, is_added: BoolArray, was_us: FloatArray
) -> FloatArray:
    """Return the time of each added op on each device kind, `[num_added, num_kinds]`.

    is_added: `[num_kept]`. was_us: the times of the ops that the added ones serve.
    """
    specs, which = np.unique(expansion.spec_of[is_added], return_inverse=True)
    of_specs = [parts.added_us(expansion.specs[spec]) for spec in specs.tolist()]
    added_us = np.array(of_specs).reshape(-1, len(parts.fallback.us))[which]
    there_us = np.where(np.isnan(was_us), np.nan, added_us)
    on_gpu = np.array([problem.machine.device_type(kind) == "GPU" for kind in problem.kinds])
    on_no_gpu = np.all(np.isnan(was_us[:, on_gpu]), axis=1)
    is_anywhere = on_no_gpu | np.all(np.isnan(there_us), axis=1)
    found: FloatArray = np.where(is_anywhere[:, None], added_us, there_us)
    return found
