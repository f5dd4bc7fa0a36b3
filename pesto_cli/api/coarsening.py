"""Coarsening profiles, explaining the merges, and expanding coarse placements to all ops."""

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
    """Return a coarse profile, whose ops are nodes that stand for several ops of the profile.

    Args:
        profile: the profile to coarsen; it is not changed.
        num_nodes: the wanted number of nodes. More are left if no two of them can be merged.
        merging: "parallel" keeps the critical path short, "plain" follows the paper.
        on_round: called with every batch of merges, see `merge_log`.

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
    """Return every pair of nodes that a round of `coarsen` considered, with reason and verdict.

    Example:
        >>> Counter(pair.verdict for pair in merge_log(profile, rounds[0]))
    """
    return logged_merges(profile.problem, round_)


@checked
def expand(profile: Profile, coarse: Profile, placed: Placed) -> Result:
    """Return a result of the profile in which every op runs on the device of its node.

    The order of the ops is the better of two: by upward rank, or node by node in the coarse order.

    Args:
        profile: the profile that was coarsened.
        coarse: the coarse profile that `coarsen` returned.
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
    """Return the map from nodes to ops, which a coarse profile stores by the names of ops."""
    graph, members = profile.problem.graph, coarse.members or []
    node_of = {op: node for node, names in enumerate(members) for op in names}
    devices, coarse_devices = (list(each.problem.machine.index_of) for each in (profile, coarse))
    if (
        node_of.keys() != graph.index_of.keys()
        or sum(map(len, members)) != graph.num_ops
        or devices != coarse_devices
    ):
        raise BadInputError(
            f"{coarse!r} was not made from {profile!r}: its nodes do not contain each op of the "
            "profile once, or its devices differ; a result of coarsen(profile, n) was expected."
        )
    return Coarsening(coarse.problem, np.array([node_of[name] for name in graph.names]))


def _check_devices(profile: Profile, device: IntArray) -> None:
    """Refuse devices that ops may not use, as when the coarse profile had other constraints."""
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
