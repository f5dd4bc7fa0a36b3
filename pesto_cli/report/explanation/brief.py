"""The start and end of several ops, and the cause of each start."""

from collections.abc import Sequence
from dataclasses import dataclass

from pesto_cli.evaluation.critical_path import CauseFinder, Reason
from pesto_cli.report.explanation.words import cause_text


@dataclass(frozen=True)
class BriefFacts:
    """A row of a list of ops. cause: a text on what the op waited for last."""

    op: str
    type: str
    device: str
    start_us: float
    end_us: float
    why: Reason
    cause: str


def brief_facts(causes: CauseFinder, names: Sequence[str]) -> list[BriefFacts]:
    """Return the facts of some ops, ordered by start time."""
    problem, schedule = causes.problem, causes.schedule
    found = []
    for name in names:
        op = problem.graph.index_of[name]
        cause = causes.of_op(op)
        device = problem.machine.devices[int(schedule.device[op])].name
        found.append(
            BriefFacts(
                name,
                problem.graph.types[op],
                device,
                float(schedule.start_us[op]),
                float(schedule.end_us[op]),
                cause.why,
                cause_text(causes, cause),
            )
        )
    return sorted(found, key=lambda brief: brief.start_us)
