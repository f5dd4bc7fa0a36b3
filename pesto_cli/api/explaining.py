"""Explaining why an op runs where and when it does, and what the step time consists of."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

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
from pesto_cli.report.explanation.split import SplitFacts, membership, split_facts
from pesto_cli.report.explanation.step_time import StepFacts, step_facts
from pesto_cli.report.families import Families
from pesto_cli.strategies.what_if import what_if
from pesto_cli.strategies.what_if_parts import what_if_parts


@checked
def explain(profile: Profile, placed: PlacementFile, op: str) -> OpFacts | SplitFacts:
    """Explain why an op runs where and when it does, and predict the step if it ran elsewhere.

    An op that the placement splits is explained by its parts, by the ops that its plan adds for
    them, by the prices of the op whole and in other numbers of parts, and by the predicted step if
    it were whole or had more parts.

    Raises:
        BadInputError: the profile has no op of this name.

    Example:
        >>> explain(profile, load("split.placement.json"), "encoder/layer_0/MatMul").prices
    """
    found = _Replayed(profile, placed)
    problem, schedule, families = found.causes.problem, found.causes.schedule, found.families
    path = schedule_critical_path(problem, schedule)
    if families is not None and op in found.split:
        index = profile.problem.graph.index_of[op]
        others = what_if_parts(found.solution, index)
        return split_facts(found.causes, path, found.solution, families, index, others)
    if op not in problem.graph.index_of:
        names = found.matching(op)
        raise BadInputError(
            f"{op!r} matches {len(names)} ops, such as {names[0]!r}; the name of one op was "
            "expected."
        )
    index, simulator = problem.graph.index_of[op], Simulator(problem)
    elsewhere = {
        device: what_if(simulator, schedule, index, device)
        for device in np.flatnonzero(problem.allowed[index]).tolist()
    }
    member = membership(found.solution, families, index)
    return op_facts(found.causes, path, index, elsewhere, member)


@checked
def explained_ops(profile: Profile, placed: PlacementFile, wanted: str) -> list[str]:
    """Return the names of the ops that a name, a pattern with `*` or a prefix of names matches.

    Raises:
        BadInputError: no op matches; the message has similar names.
    """
    return _Replayed(profile, placed).matching(wanted)


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
    return _Replayed(profile, placed).causes


class _Replayed:
    """A placement that is replayed, with the causes of its start times."""

    def __init__(self, profile: Profile, placed: PlacementFile) -> None:
        self.solution = solution_of(profile, placed)
        self.causes = CauseFinder(self.solution.problem, self.solution.schedule)
        self.families = Families.of_solution(self.solution)

    @cached_property
    def split(self) -> dict[str, list[str]]:
        """The ops that were split, and the names of what each became."""
        names, index_of = self.solution.problem.graph.names, self.solution.asked.graph.index_of
        if self.families is None or self.solution.plan is None:
            return {}
        members: dict[int, list[str]] = defaultdict(list)
        for new, op in zip(names, self.families.of.tolist(), strict=True):
            members[op].append(new)
        found = {name: members[index_of[name]] for name in self.solution.plan.choices}
        return {name: became for name, became in found.items() if became}

    def matching(self, wanted: str) -> list[str]:
        """Return the names of the ops that are meant."""
        graph, before = self.solution.problem.graph, self.solution.asked.graph
        is_left = wanted in self.split or wanted in graph.index_of
        if wanted in before.index_of and not is_left:
            raise BadInputError(
                f"op {wanted!r} of the graph is no op of the step with split ops, because no op of "
                "this step needs it; the name of one that is needed was expected."
            )
        return matching_ops(graph, wanted, self.split)
