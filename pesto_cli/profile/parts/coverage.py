"""Which ops cannot be split: a row for each op type and reason, by work."""

from collections import defaultdict

from pesto_cli.data.coverage import Reason, WholeOps
from pesto_cli.data.labels import Role
from pesto_cli.data.parts import Parts
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.rules import alternatives, has_rule


def whole_ops(problem: Problem, parts: Parts) -> list[WholeOps]:
    """Return the ops that cannot be split, by descending share; `parts` are those of `problem`."""
    # The index -1, of an op without a spec, selects the last one.
    reasons = [*map(_reason, parts.specs), Reason.SEVERAL_NODES]
    counts: dict[tuple[str, Reason], int] = defaultdict(int)
    work_us: dict[tuple[str, Reason], float] = defaultdict(float)
    times_us = problem.min_duration_us.tolist()
    is_variable = problem.graph.labels.has_role(Role.VARIABLE).tolist()
    for op, (index, op_type) in enumerate(
        zip(parts.spec_of.tolist(), problem.graph.types, strict=True)
    ):
        reason = Reason.VARIABLE if index < 0 and is_variable[op] else reasons[index]
        reason = Reason.CONSTRAINT if op in parts.kept_whole else reason
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
    if any(operand.is_handle for operand in (*spec.inputs, *spec.outputs)):
        return Reason.VARIABLE
    if not has_rule(spec.type):
        return Reason.NO_RULE if spec.outputs else Reason.NO_OUTPUT
    return Reason.BY_RULE if spec.is_static else Reason.OPEN_SHAPE
