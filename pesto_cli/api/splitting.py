"""Splitting ops: plans, profiles of split ops, and which ops cannot be split."""

from dataclasses import replace

from pesto_cli.api.arguments import checked
from pesto_cli.data.constraints import SplitRule
from pesto_cli.data.coverage import Coverage
from pesto_cli.data.plan import WHOLE_OPS, Plan
from pesto_cli.data.result import Result
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.profile.parts.coverage import whole_ops
from pesto_cli.sharding import problems
from pesto_cli.sharding.problems import prices_of
from pesto_cli.strategies.chosen_plan import with_chosen

# Entries of the provenance of a profile that hold only before its ops are split.
OF_WHOLE_OPS = ("graph_hash", "parts")


@checked
def plan(placed: PlacementFile | Result) -> Plan:
    """Return the plan of a placement or of a result: which ops it splits, and in which way.

    The plan of a placement with whole ops is empty, and false as a boolean.

    Example:
        >>> plan(solve(profile, "data-parallel")).choices["encoder/layer_0/MatMul"].sizes
    """
    if isinstance(placed, PlacementFile):
        return placed.plan
    return placed.solution.plan or WHOLE_OPS


@checked
def split(profile: Profile, *rules: SplitRule) -> Plan:
    """Return the plan that splits ops by patterns of names, as `[[split]]` in constraints.

    Args:
        profile: a profile with prices of parts.
        rules: patterns of op names, and how to split the ops that match.

    Raises:
        BadInputError: a rule matches no op that can be split in this way, two rules differ about an
            op, or the profile does not price the parts.

    Example:
        >>> split(profile, SplitRule("layer_1/*", by="columns", parts=2))
    """
    return with_chosen(replace(profile.problem, chosen=WHOLE_OPS), rules).chosen


@checked
def rewritten(profile: Profile, plan: Plan) -> Profile:
    """Return a profile of the ops into which a plan splits those of a profile.

    Its parts, and the ops that the plan adds, are ops like any other. It has no prices of parts.

    Args:
        profile: a profile with prices of parts.
        plan: a plan for its ops; with an empty plan, the result is the profile itself.

    Raises:
        BadInputError: the profile has no prices of parts, or the plan does not fit it.

    Example:
        >>> coarsen(rewritten(profile, plan(load("split.placement.json"))), 100)
    """
    if not plan:
        return profile
    made, devices = problems.rewritten(profile.problem, plan), profile.program_device
    origin = made.origin.tolist()
    kept = {key: value for key, value in profile.provenance.items() if key not in OF_WHOLE_OPS}
    return Profile(
        made.problem,
        {**kept, "split_from": profile.file_hash},
        program_device=devices and [devices[op] if op >= 0 else "" for op in origin],
    )


@checked
def coverage(profile: Profile) -> Coverage:
    """Return which ops of a profile stay whole, by op type and reason.

    Raises:
        UnfitError: the profile has no prices of parts.

    Example:
        >>> coverage(profile).share
    """
    problem = profile.problem
    return Coverage(tuple(whole_ops(problem, prices_of(problem))), problem.num_ops)
