"""Explaining why an op runs where and when it does, and what the step time consists of."""

from collections.abc import Sequence

import numpy as np

from pesto_cli.api.arguments import checked
from pesto_cli.api.placing import solution_of
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.critical_path import CauseFinder, schedule_critical_path
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.report.explanation.brief import BriefFacts, brief_facts
from pesto_cli.report.explanation.matching import matching_ops
from pesto_cli.report.explanation.op import OpFacts, op_facts
from pesto_cli.report.explanation.step_time import StepFacts, step_facts
from pesto_cli.strategies.what_if import what_if


@checked
def explain(profile: Profile, placed: PlacementFile, op: str) -> OpFacts:
    """Explain why an op runs where and when it does, and predict the step if it ran elsewhere.

    Raises:
        BadInputError: the profile has no op of this name.
    """
    found = _causes(profile, placed)
    problem = found.problem
    if op not in problem.graph.index_of:
        names = matching_ops(problem.graph, op)
        raise BadInputError(
            f"{op!r} matches {len(names)} ops, such as {names[0]!r}; the name of one op was "
            "expected."
        )
    index, simulator = problem.graph.index_of[op], Simulator(problem)
    elsewhere = {
        device: what_if(simulator, found.schedule, index, device)
        for device in np.flatnonzero(problem.allowed[index]).tolist()
    }
    return op_facts(found, schedule_critical_path(problem, found.schedule), index, elsewhere)


@checked
def explain_briefly(
    profile: Profile, placed: PlacementFile, ops: Sequence[str]
) -> list[BriefFacts]:
    """Return when some ops run and what each waited for, ordered by start time."""
    return brief_facts(_causes(profile, placed), ops)


@checked
def explain_step(profile: Profile, placed: PlacementFile) -> StepFacts:
    """Return the critical path of the schedule of a placement, and sums over it."""
    found = _causes(profile, placed)
    return step_facts(found, schedule_critical_path(found.problem, found.schedule))


def _causes(profile: Profile, placed: PlacementFile) -> CauseFinder:
    """Replay a placement, and return a finder of the causes of its start times."""
    solution = solution_of(profile, placed)
    return CauseFinder(solution.problem, solution.schedule)
