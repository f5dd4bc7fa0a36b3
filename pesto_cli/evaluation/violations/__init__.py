"""The independent check of a schedule against its problem, by the execution model alone.

The check is written from `docs/architecture.md` for clarity, and shares no code with the simulator.
A rule is a function of an `Observed` schedule; related rules share a file.
"""

from dataclasses import dataclass

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.violations.columns import malformed
from pesto_cli.evaluation.violations.durations import duration
from pesto_cli.evaluation.violations.links import first_come_first_served, transfer
from pesto_cli.evaluation.violations.memory import memory
from pesto_cli.evaluation.violations.observed import Observed
from pesto_cli.evaluation.violations.places import affinity, colocation, order
from pesto_cli.evaluation.violations.starts import device_overlap, feed, precedence

__all__ = ["Violation", "violations"]

RULES = (
    affinity,
    colocation,
    order,
    duration,
    device_overlap,
    precedence,
    feed,
    transfer,
    first_come_first_served,
    memory,
)


@dataclass(frozen=True)
class Violation:
    """A rule of the execution model that a schedule breaks, and a message that says where."""

    rule: str
    message: str


def violations(problem: Problem, schedule: Schedule) -> list[Violation]:
    """Return all violations of a schedule; empty if it is correct.

    Rules: affinity, colocation, duration, feed, idle, order, overlap, precedence, queue, transfer,
    peak, memory. `idle` is broken by an op or a transfer that starts later than it could, given
    the order on its device or link. `queue` is broken by a link that is not first come, first
    served. A malformed column (a wrong length, an index out of range, a time that is not finite)
    breaks the rule that reads it; then only the columns are checked.
    """
    found = malformed(problem, schedule)
    if not found:
        seen = Observed(problem, schedule)
        found = [finding for rule in RULES for finding in rule(seen)]
    return [Violation(rule, message) for rule, message in found]
