"""Coarse graphs, and why their nodes were merged."""

from pesto_cli.coarsen import Considered, Round
from pesto_cli.coarsen import coarsen as coarsen_problem
from pesto_cli.coarsen import considered as considered_pairs
from pesto_cli.coarsen.rounds import OnRound, unheard
from pesto_cli.files import Profile


def coarsen(
    profile: Profile,
    num_nodes: int = 200,
    *,
    merging: str = "parallel",
    on_round: OnRound = unheard,
) -> Profile:
    """Coarsen to a profile whose ops are nodes, with the names of their members.

    Args:
        profile: is left as it is.
        num_nodes: how many nodes are wanted; more are left where no two can be merged.
        merging: "parallel" keeps the critical path, "plain" is the paper's.
        on_round: told of every batch of merges, see `considered`.

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


def considered(profile: Profile, round_: Round) -> list[Considered]:
    """Every pair of nodes that a round of `coarsen` looked at, why it could merge, and if it did.

    Example:
        >>> Counter(pair.verdict for pair in considered(profile, rounds[0]))
    """
    return considered_pairs(profile.problem, round_)
