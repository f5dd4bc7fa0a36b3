"""Which ops cannot be split: a row for each op type and reason, by work."""

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from pesto_cli.data.parts import Parts
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.rules import alternatives, has_rule


class Reason(StrEnum):
    """Why an op stays whole."""

    NO_RULE = "no rule"
    BY_RULE = "by rule"
    OPEN_SHAPE = "open shape"
    NO_SPEC = "no single node"


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
        reason = Reason.NO_SPEC if index < 0 else reasons[index]
        if reason is not None:
            counts[op_type, reason] += 1
            work_us[op_type, reason] += times_us[op]
    total_us = sum(times_us) or 1.0
    rows = [WholeOps(*key, count, work_us[key] / total_us) for key, count in counts.items()]
    return sorted(rows, key=lambda row: (-row.share, row.type, row.reason))


def _reason(spec: OpSpec) -> Reason | None:
    """Return why an op with this spec stays whole; None if it can be split."""
    if not has_rule(spec.type):
        return Reason.NO_RULE
    if not spec.is_static:
        return Reason.OPEN_SHAPE
    if all(each.name == "replicated" for each in alternatives(spec)):
        return Reason.BY_RULE
    return None
