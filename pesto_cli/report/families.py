"""Families: the ops of a split graph that each op of the original graph became."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from pesto_cli.data.columns import IntArray
from pesto_cli.data.solution import Solution
from pesto_cli.sharding.added_ops import COMBINING


class Made(StrEnum):
    """What an op of a split graph is."""

    WHOLE = "whole"  # an op that was not split
    PART = "part"
    SHARED = "shared"  # computes for all parts of an op, such as the mean of a batch norm
    SUM = "sum"  # combines the partial tensors of an op
    CONVERSION = "conversion"  # cuts, joins or copies an output of an op


NAMES = {
    Made.WHOLE: "ops that stay whole",
    Made.PART: "parts",
    Made.SHARED: "ops for all parts of an op",
    Made.CONVERSION: "added: cuts, joins, copies",
    Made.SUM: "added: sums of parts",
}


@dataclass(frozen=True, eq=False)
class Families:
    """The families of a solution whose ops were split by a plan.

    of: `[num_ops]`: the op of the original graph that each op of the split graph is, is a part of,
        or serves.
    made: `[num_ops]`: what each op is.
    part: `[num_ops]`: index of the part, or -1.
    """

    of: IntArray
    made: list[Made]
    part: IntArray

    @classmethod
    def of_solution(cls, solution: Solution) -> "Families | None":
        """Return the families of a solution; None if no op was split."""
        if not solution.plan or solution.part is None or solution.serves is None:
            return None
        made = [_made(solution, op) for op in range(solution.problem.num_ops)]
        return cls(solution.serves, made, solution.part)

    def members(self, op: int) -> list[int]:
        """Return the ops of a family, ascending. op: an op of the original graph."""
        found: list[int] = np.flatnonzero(self.of == op).tolist()
        return found

    @property
    def added(self) -> Mapping[int, Made]:
        """The conversions and sums: op -> which of the two it is."""
        kinds = (Made.CONVERSION, Made.SUM)
        return {op: made for op, made in enumerate(self.made) if made in kinds}


def _made(solution: Solution, op: int) -> Made:
    origin = int(solution.origin[op])
    if origin < 0:
        is_sum = solution.problem.graph.types[op] in COMBINING.values()
        return Made.SUM if is_sum else Made.CONVERSION
    if solution.part is not None and solution.part[op] >= 0:
        return Made.PART
    is_split = solution.plan and solution.asked.graph.names[origin] in solution.plan.choices
    return Made.SHARED if is_split else Made.WHOLE
