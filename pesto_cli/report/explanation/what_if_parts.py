"""What-if analysis: the step time with a split op whole, or in more parts, or why not."""

from collections.abc import Mapping
from dataclasses import dataclass

from pesto_cli.data.plan import WHOLE_OPS
from pesto_cli.data.schedule import sent_bytes
from pesto_cli.data.solution import Solution
from pesto_cli.report.explanation.what_if import short_bytes
from pesto_cli.report.families import Families


@dataclass(frozen=True)
class InParts:
    """The step with an op, and the ops that must be split alike, in another number of parts.

    num_parts: 1 is the whole op. why_not: why that is impossible; `changed` is empty and the
    figures are None then. changed: the other ops whose number of parts changes, too.
    makespan_us: the step time. short_bytes: by how much the memory of devices is exceeded, by
    device name.
    more_added_us: time of all ops that the plan adds, such as sums and conversions.
    more_sent_bytes: bytes of all transfers. Both minus those of the present plan.
    """

    num_parts: int
    why_not: str | None = None
    changed: tuple[str, ...] = ()
    makespan_us: float | None = None
    short_bytes: Mapping[str, int] | None = None
    more_added_us: float | None = None
    more_sent_bytes: int | None = None


def in_parts(now: Solution, op: int, num_parts: int, there: Solution | str) -> InParts:
    """Return the figures of another number of parts.

    there: the solution with it, see `strategies.what_if_parts`, or why there is none.
    """
    if isinstance(there, str):
        return InParts(num_parts, there)
    before, after = ((each.plan or WHOLE_OPS).choices for each in (now, there))
    name = now.asked.graph.names[op]
    return InParts(
        num_parts,
        changed=tuple(each for each in before if each != name and before[each] != after.get(each)),
        makespan_us=there.makespan_us,
        short_bytes=short_bytes(there.problem, there.schedule),
        more_added_us=_added_us(there) - _added_us(now),
        more_sent_bytes=_sent_bytes(there) - _sent_bytes(now),
    )


def _added_us(solution: Solution) -> float:
    families = Families.of_solution(solution)
    added = [] if families is None else list(families.added)
    device = solution.schedule.device[added]
    return float(solution.problem.duration_us[added, device].sum())


def _sent_bytes(solution: Solution) -> int:
    return int(sent_bytes(solution.problem, solution.schedule).sum())
