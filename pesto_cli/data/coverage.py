"""Coverage: which ops of a profile cannot be split, and why."""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why an op stays whole.

    VARIABLE: it creates, reads or updates a variable, which has one owner, or a list of tensors.
    NO_OUTPUT: it has no rule, and no data that could be split, such as a NoOp.
    NO_RULE: it has no rule.
    BY_RULE: its rule gives no way to split it.
    OPEN_SHAPE: it has a rule, but a shape depends on data.
    SEVERAL_NODES: it is a while loop, or another op that is no node of the graph.
    CONSTRAINT: a constraint keeps it whole.
    """

    VARIABLE = "variable"
    NO_OUTPUT = "no output"
    NO_RULE = "no rule"
    BY_RULE = "by rule"
    OPEN_SHAPE = "open shape"
    SEVERAL_NODES = "several nodes"
    CONSTRAINT = "constraint"


@dataclass(frozen=True)
class WholeOps:
    """The ops of a type that stay whole for a reason.

    share: their part of the work of the step: the time of all ops on the fastest device that each
        may use.
    """

    type: str
    reason: Reason
    num_ops: int
    share: float


@dataclass(frozen=True)
class Coverage:
    """The ops of a profile that stay whole.

    rows: by op type and reason, by descending share of the work. num_ops: number of all ops.
    """

    rows: tuple[WholeOps, ...]
    num_ops: int

    def __repr__(self) -> str:
        count = sum(row.num_ops for row in self.rows)
        ops = f"{count:,} of {self.num_ops:,} ops"
        return f"<Coverage: {ops} stay whole, {self.share:.1%} of the work>"

    @property
    def share(self) -> float:
        """The share of the work that stays whole."""
        return sum(row.share for row in self.rows)
