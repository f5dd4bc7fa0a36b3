"""Whether a placement still holds, and what another one changes."""

from typing import Any

from pesto_cli.data.machine import Machine
from pesto_cli.diff import (
    FreshnessCheck,
    PlacementComparison,
    Prediction,
    graph_diff,
    placement_diff,
    predicted,
    stored_prediction,
)
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import replay
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.graphdef.read import read_step
from pesto_cli.strategies.placement_mapping import map_placement


def check(
    meta: Any,
    placed: PlacementFile,
    profile: Profile | None = None,
    *,
    max_regression: float | None = None,
    what: str = "the graph",
) -> FreshnessCheck:
    """Whether a placement is still the one for a graph, and for a profile of it.

    meta: a MetaGraphDef. max_regression: by what share the step may be slower than promised.

    Raises:
        BadInputError: the profile is of another graph.
    """
    step = read_step(meta, what)
    graph, now = step.graph, None
    if profile is not None:
        # Its sizes may be measured, as those are that the placement's fingerprints are of.
        graph = profile.problem.graph
        if profile.graph_hash not in (None, step.graph_hash) or graph.names != step.graph.names:
            raise BadInputError(
                f"the profile is of another graph than {what}; one of this graph was expected: "
                "profile it, or leave out --profile."
            )
        carried = map_placement(placed, profile.problem)
        if carried.num_by_name:
            now = predicted(profile.problem, replay(profile.problem, carried.placement))
    return FreshnessCheck(
        graph=graph_diff(placed, graph, step.graph_hash),
        has_other_profile=None if profile is None else _has_other_profile(placed, profile, now),
        before=stored_prediction(placed),
        now=now,
        max_regression=max_regression,
    )


def _has_other_profile(placed: PlacementFile, profile: Profile, now: Prediction | None) -> bool:
    """By the hashes of the two or, of a profile that is in no file, by what it predicts."""
    hashes = (placed.provenance.get("profile_hash"), profile.file_hash)
    if all(hashes):
        return hashes[0] != hashes[1]
    return now is None or now.step_us != stored_prediction(placed).step_us


def diff(
    first: PlacementFile, second: PlacementFile, profile: Profile | None = None
) -> PlacementComparison:
    """What a second placement has otherwise than a first.

    Figures are by the profile for placements that fit its ops and devices, else as they stand in
    the file.

    Raises:
        BadInputError: the profile is of neither.
    """
    promise = stored_prediction(first)
    if profile is None:
        return PlacementComparison(
            placement_diff(first, second), promise, promise, stored_prediction(second)
        )
    problem = profile.problem
    changes = placement_diff(first, second, problem)
    ops, devices = set(problem.graph.names), problem.machine.index_of.keys()
    is_of_ops = [set(placed.names) == ops for placed in (first, second)]
    if not any(is_of_ops):
        raise BadInputError(
            "the profile has other ops than both placements; one of a placement's graph was "
            "expected: profile that, or leave out --profile."
        )
    before, after = (
        predicted(problem, replay(problem, placed.match(problem)))
        if is_its and devices >= set(placed.devices)
        else stored_prediction(placed)
        for placed, is_its in zip((first, second), is_of_ops, strict=True)
    )
    work_us = dict(zip(problem.graph.names, problem.min_duration_us.tolist(), strict=True))
    return PlacementComparison(changes, promise, before, after, work_us)


def check_same_machine(profile: Profile, machine: Machine) -> None:
    """Refuse a profile of other devices than a machine's.

    Raises:
        BadInputError: naming both.
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
