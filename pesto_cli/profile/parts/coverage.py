"""Which ops cannot be split: a row for each op type and reason, by work."""

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from pesto_cli.data.parts import Parts
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.rules import HANDLES, alternatives, has_rule


class Reason(StrEnum):
    """Why an op stays whole.

    VARIABLE: it creates, reads or updates a variable, which has one owner, or a list of tensors.
    NO_OUTPUT: it has no rule, and no data that could be split, such as a NoOp.
    NO_RULE: it has no rule.
    BY_RULE: its rule gives no way to split it.
    OPEN_SHAPE: it has a rule, but a shape depends on data.
    SEVERAL_NODES: it is a while loop, or another op that is no node of the graph.
    """

    VARIABLE = "variable"
    NO_OUTPUT = "no output"
    NO_RULE = "no rule"
    BY_RULE = "by rule"
    OPEN_SHAPE = "open shape"
    SEVERAL_NODES = "several nodes"


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


def whole_ops(problem: Problem, parts: Parts) -> list[WholeOps]:
    """Return the ops that cannot be split, by descending share; `parts` are those of `problem`."""
    reasons = [_reason(spec) for spec in parts.specs]
    counts: dict[tuple[str, Reason], int] = defaultdict(int)
    work_us: dict[tuple[str, Reason], float] = defaultdict(float)
    times_us = problem.min_duration_us.tolist()
    for op, (index, op_type) in enumerate(
        zip(parts.spec_of.tolist(), problem.graph.types, strict=True)
    ):
        reason = Reason.SEVERAL_NODES if index < 0 else reasons[index]
        if reason is not None:
            counts[op_type, reason] += 1
            work_us[op_type, reason] += times_us[op]
    total_us = sum(times_us) or 1.0
    rows = [WholeOps(*key, count, work_us[key] / total_us) for key, count in counts.items()]
    return sorted(rows, key=lambda row: (-row.share, row.type, row.reason))


def _reason(spec: OpSpec) -> Reason | None:
    """Return why an op with this spec stays whole; None if it can be split."""
    if any(each.name != "replicated" for each in alternatives(spec)):
        return None
    if any(operand.dtype in HANDLES for operand in (*spec.inputs, *spec.outputs)):
        return Reason.VARIABLE
    if not has_rule(spec.type):
        return Reason.NO_RULE if spec.outputs else Reason.NO_OUTPUT
    return Reason.BY_RULE if spec.is_static else Reason.OPEN_SHAPE
