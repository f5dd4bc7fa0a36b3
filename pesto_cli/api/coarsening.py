"""Coarse graphs, why their nodes were merged, and the way back to the ops."""

import time

import numpy as np

from pesto_cli.api.arguments import checked
from pesto_cli.api.placing import Placed, solution_of, strategy_of
from pesto_cli.coarsen import Coarsening, LoggedMerge, Round
from pesto_cli.coarsen import coarsen as coarsen_problem
from pesto_cli.coarsen import merge_log as logged_merges
from pesto_cli.coarsen.rounds import OnRound, ignore_round
from pesto_cli.data.graph import IntArray
from pesto_cli.data.result import Result
from pesto_cli.data.schedule import objective
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.strategies.pesto import expanded
from pesto_cli.strategies.run import judged


@checked
def coarsen(
    profile: Profile,
    num_nodes: int = 200,
    *,
    merging: str = "parallel",
    on_round: OnRound = ignore_round,
) -> Profile:
    """Coarsen to a profile whose ops are nodes, with the names of their members.

    Args:
        profile: is left as it is.
        num_nodes: how many nodes are wanted; more are left where no two can be merged.
        merging: "parallel" keeps the critical path, "plain" is the paper's.
        on_round: told of every batch of merges, see `merge_log`.

    Raises:
        BadInputError: num_nodes is below 1, or the merging is unknown.

    Example:
        >>> rounds = []
        >>> coarse = coarsen(profile, 200, on_round=rounds.append)
    """
    coarsening = coarsen_problem(profile.problem, num_nodes, merging=merging, on_round=on_round)
    names = profile.problem.graph.names
    members = [
        [names[op] for op in coarsening.members[node].tolist()]
        for node in range(coarsening.num_nodes)
    ]
    provenance = {**profile.provenance, "coarsened_from": profile.file_hash}
    return Profile(coarsening.problem, provenance, members)


@checked
def merge_log(profile: Profile, round_: Round) -> list[LoggedMerge]:
    """Every pair of nodes that a round of `coarsen` looked at, why it could merge, and if it did.

    Example:
        >>> Counter(pair.verdict for pair in merge_log(profile, rounds[0]))
    """
    return logged_merges(profile.problem, round_)


@checked
def expand(profile: Profile, coarse: Profile, placed: Placed) -> Result:
    """The ops' result where every op goes to the device of its node, as `solve` has it.

    Their order is the better of two: by upward rank, and node by node in the coarse order.

    Args:
        profile: what was coarsened.
        coarse: what `coarsen` made of it.
        placed: a result, schedule or placement of the coarse profile.

    Raises:
        BadInputError: the coarse profile is of other ops or devices, or the placement is not of it.

    Example:
        >>> coarse = coarsen(profile, 40)
        >>> expand(profile, coarse, solve(coarse, time_limit_s=5))
    """
    began = time.perf_counter()
    schedule = solution_of(coarse, placed).schedule
    coarsening = _coarsening(profile, coarse)
    _check_devices(profile, coarsening.expand(schedule.device))
    found = expanded(Simulator(profile.problem), coarsening, schedule)
    best = min(found, key=lambda each: objective(profile.problem, each))
    name, runtime_s = f"{strategy_of(placed)}, expanded", time.perf_counter() - began
    return judged(name, Solution.of(profile.problem, best), runtime_s)


def _coarsening(profile: Profile, coarse: Profile) -> Coarsening:
    """The map from nodes to ops that a coarse profile has as names."""
    graph, members = profile.problem.graph, coarse.members or []
    node_of = {op: node for node, names in enumerate(members) for op in names}
    devices, coarse_devices = (list(each.problem.machine.index_of) for each in (profile, coarse))
    if (
        node_of.keys() != graph.index_of.keys()
        or sum(map(len, members)) != graph.num_ops
        or devices != coarse_devices
    ):
        raise BadInputError(
            f"{coarse!r} was not made of {profile!r}: its nodes do not have each op of the profile "
            "once, or its devices are others; what coarsen(profile, n) makes of it was expected."
        )
    return Coarsening(coarse.problem, np.array([node_of[name] for name in graph.names]))


def _check_devices(profile: Profile, device: IntArray) -> None:
    """Refuse devices that ops may not run on, as after other constraints."""
    problem = profile.problem
    PlacementFile(
        devices=list(problem.machine.index_of),
        names=list(problem.graph.names),
        device=device.tolist(),
        rank=[0] * problem.num_ops,
        fingerprint=[],
        provenance={},
        predicted={},
    ).match(problem)
