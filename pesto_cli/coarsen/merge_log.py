"""A log of one round of merging: each pair by name, why it could be merged, and whether it was."""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np

from pesto_cli.coarsen.batch import NoCycle, condition_ii
from pesto_cli.coarsen.coarse_problem import heaviest
from pesto_cli.coarsen.paths import longest_paths
from pesto_cli.coarsen.pressure import joint_work_us, pressure_us
from pesto_cli.coarsen.quotient import Pairs
from pesto_cli.coarsen.rounds import MergeVerdict, Round
from pesto_cli.data.graph import BoolArray
from pesto_cli.data.problem import Problem


@dataclass(frozen=True)
class LoggedMerge:
    """A pair of nodes that have an edge, or that could be merged without one.

    first, second: name of the op with the most work in each node.
    first_height, second_height: the heights of the nodes in this round.
    num_bytes: weight of the data on the edge, as the merging counts it.
    path_us: the pressure: the longest path through the merged node, or the work of its group if
        that is longer.
    why: reasons, as in `NoCycle`, why the merge closes no cycle; empty if none is known.
    verdict: as in `MergeVerdict`; "may close a cycle"; or "no device" if the two cannot share one.
    """

    first: str
    second: str
    first_height: int
    second_height: int
    num_bytes: float
    path_us: float
    why: tuple[str, ...]
    verdict: str


def merge_log(problem: Problem, round_: Round) -> list[LoggedMerge]:
    """Return all pairs that a round could merge, and all edges that it could not merge.

    problem: the problem that was coarsened.
    """
    quotient, height = round_.quotient, round_.height
    edges = Pairs(*quotient.edges, quotient.weight_bytes)
    edge_why, is_edge = condition_ii(quotient, height, edges), _in(round_.pairs, edges, round_)
    others = np.flatnonzero(~_in(edges, round_.pairs, round_))
    pairs = round_.pairs.and_then(edges[others])
    why = np.concatenate(
        (
            np.where(
                is_edge,
                condition_ii(quotient, height, round_.pairs),
                NoCycle.SAME_HEIGHT * (height[round_.pairs.first] == height[round_.pairs.second]),
            ),
            edge_why[others],
        )
    )
    verdicts = [_words(MergeVerdict(code)) for code in round_.verdict.tolist()]
    verdicts += [
        _words(MergeVerdict.NO_DEVICE) if code else "may close a cycle" for code in edge_why[others]
    ]
    names = [problem.graph.names[op] for op in heaviest(problem, quotient)]
    path_us = pressure_us(quotient, longest_paths(quotient), pairs, joint_work_us(quotient, pairs))
    return [
        LoggedMerge(
            names[u],
            names[v],
            int(height[u]),
            int(height[v]),
            float(pairs.weight_bytes[row]),
            float(path_us[row]),
            tuple(_words(flag) for flag in NoCycle if flag & int(why[row])),
            verdicts[row],
        )
        for row, (u, v) in enumerate(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    ]


def _in(pairs: Pairs, others: Pairs, round_: Round) -> BoolArray:
    """Return whether each pair of the first list is in the second list, `[num_pairs]`."""
    width = round_.quotient.num_nodes
    return np.isin(pairs.first * width + pairs.second, others.first * width + others.second)


def _words(member: IntEnum | IntFlag) -> str:
    return str(member.name).lower().replace("_", " ")
