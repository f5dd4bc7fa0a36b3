"""Checking whether a placement is up to date, and comparing two placements."""

from typing import Any

from pesto_cli.api.arguments import checked
from pesto_cli.api.placing import solution_of
from pesto_cli.data.machine import Machine
from pesto_cli.diff import (
    FreshnessCheck,
    LostSplit,
    PlacementComparison,
    Prediction,
    graph_diff,
    placement_diff,
    predicted,
    stored_prediction,
)
from pesto_cli.errors import BadInputError, about
from pesto_cli.evaluation.simulator import replay
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.graphdef.op_specs import op_specs
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.strategies.placement_mapping import map_placement
from pesto_cli.strategies.plan_mapping import kept_without_prices, lost_splits, split_start


def check(
    meta: Any,
    placed: PlacementFile,
    profile: Profile | None = None,
    *,
    max_regression: float | None = None,
    what: str = "the graph",
) -> FreshnessCheck:
    """Check whether a placement was made for this graph, and for this profile of it.

    meta: a MetaGraphDef. max_regression: the share by which the step may be slower than the
    prediction stored in the placement. what: the name of the graph in errors.

    Raises:
        BadInputError: the profile is of another graph.
    """
    step = read_step(meta, what)
    graph, now = step.graph, None
    if profile is not None:
        # The profile may have measured sizes; the placement's fingerprints were made from these.
        graph = profile.problem.graph
        if profile.graph_hash not in (None, step.graph_hash) or graph.names != step.graph.names:
            raise BadInputError(
                f"the profile is not of {what}, but of another graph; a profile of {what} was "
                "expected: profile it, or leave out --profile."
            )
        now = _prediction_now(placed, profile)
    difference = graph_diff(placed, graph, step.graph_hash)
    has_other = None if profile is None else _has_other_profile(placed, profile, now)
    return FreshnessCheck(
        graph=difference,
        num_split=len(placed.plan.choices),
        lost_splits=_lost_splits(placed, step, profile) if difference or has_other else (),
        has_prices=profile is not None and profile.problem.parts is not None,
        has_other_profile=has_other,
        before=stored_prediction(placed),
        now=now,
        max_regression=max_regression,
    )


def _lost_splits(
    placed: PlacementFile, step: StepGraph, profile: Profile | None
) -> tuple[LostSplit, ...]:
    """Return the ops that start whole in a warm start, without prices as far as the graph says."""
    if not placed.plan:
        return ()
    if profile is not None and profile.problem.parts is not None:
        return lost_splits(placed, profile.problem)
    specs, spec_of = op_specs(step)
    of_op = [specs[index] if index >= 0 else None for index in spec_of.tolist()]
    graph = step.graph if profile is None else profile.problem.graph
    return kept_without_prices(placed, graph, of_op).lost


def _prediction_now(placed: PlacementFile, profile: Profile) -> Prediction | None:
    """Return the prediction of a placement, mapped to the graph of a profile if it has changed.

    None if no op of the placement is left, or if it splits ops and none of them can be split so.
    """
    problem = profile.problem
    if placed.plan:
        if graph_diff(placed, problem.graph, profile.graph_hash):
            split = split_start(placed, problem)
            if split is None:
                return None
            return predicted(split.problem, replay(split.problem, split.start.placement))
        solution = solution_of(profile, placed)
        return predicted(solution.problem, solution.schedule)
    mapped = map_placement(placed, problem)
    if not mapped.num_by_name:
        return None
    return predicted(problem, replay(problem, mapped.placement))


def _has_other_profile(placed: PlacementFile, profile: Profile, now: Prediction | None) -> bool:
    """Whether a placement was made from another profile.

    Compares the hashes of the profile files. If one is unknown, as for a profile without a file,
    compares the predicted step times.
    """
    hashes = (placed.provenance.get("profile_hash"), profile.file_hash)
    if all(hashes):
        return hashes[0] != hashes[1]
    return now is None or now.step_us != stored_prediction(placed).step_us


@checked
def diff(
    first: PlacementFile, second: PlacementFile, profile: Profile | None = None
) -> PlacementComparison:
    """Compare a second placement with a first one.

    The profile predicts the figures of each placement that has its ops and devices. The figures of
    other placements are those stored in their files.

    Raises:
        BadInputError: neither placement has the ops of the profile.
    """
    both, stored = (first, second), stored_prediction(first)
    if profile is None:
        return PlacementComparison(
            placement_diff(first, second), stored, stored, stored_prediction(second)
        )
    names, devices = profile.problem.graph.index_of, profile.problem.machine.index_of
    is_of_ops = [set(placed.graph_ops) == names.keys() for placed in both]
    if not any(is_of_ops):
        raise BadInputError(
            "the ops of the profile are not those of either placement; a profile of the graph of "
            "a placement was expected: profile that graph, or leave out --profile."
        )
    solutions = []
    for which, placed, is_its in zip(("first", "second"), both, is_of_ops, strict=True):
        can_run = is_its and devices.keys() >= set(placed.devices)
        with about(f"the {which} placement"):
            solutions.append(solution_of(profile, placed) if can_run else None)
    before, after = (
        stored_prediction(placed) if found is None else predicted(found.problem, found.schedule)
        for placed, found in zip(both, solutions, strict=True)
    )
    problems = [profile.problem, *(found.problem for found in solutions if found is not None)]
    work_us = {
        name: us
        for problem in problems
        for name, us in zip(problem.graph.names, problem.min_duration_us.tolist(), strict=True)
    }
    changes = placement_diff(first, second, profile.problem)
    return PlacementComparison(changes, stored, before, after, work_us)


def check_same_machine(profile: Profile, machine: Machine) -> None:
    """Check that a profile has the devices of a machine.

    Raises:
        BadInputError: the devices differ; the message lists both.
    """
    profiled = [(device.name, device.kind) for device in profile.problem.machine.devices]
    present = [(device.name, device.kind) for device in machine.devices]
    if profiled != present:
        found, expected = (
            ", ".join(f"{name} ({kind})" for name, kind in devices)
            for devices in (profiled, present)
        )
        raise BadInputError(
            f"the profile is of another machine: it has {found}; {expected} were expected: profile "
            "the graph on this machine (pesto profile --machine ... --source run)."
        )
