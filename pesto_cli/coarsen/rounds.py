"""One round of merging: the candidate pairs, and the verdict on each pair."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from pesto_cli.coarsen.quotient import Pairs, Quotient
from pesto_cli.data.graph import IntArray


class MergeVerdict(IntEnum):
    """The verdict on a pair that closes no cycle if it alone is merged."""

    MERGED = 0
    TAKEN = 1  # one of its nodes is in another pair: condition (i) of Theorem 3.5
    BARRED = 2  # could close a cycle with another pair: condition (iii)
    NO_DEVICE = 3  # its groups, as joined by other pairs, have no common device
    CAPPED = 4  # the node or group would have too much work, or too many ops
    TOO_LONG = 5  # makes a path longer than the limit
    TOO_LONG_TOGETHER = 6  # makes a path longer than the limit together with other pairs
    NOT_NEEDED = 7  # the target number of nodes is reached without it


@dataclass(frozen=True, eq=False, repr=False)
class Round:
    """One batch of merges.

    quotient: the quotient before the batch.
    height: height of each of its nodes, `[num_nodes]`.
    pairs: the candidates, each of which alone closes no cycle, in no particular order.
    verdict: `[num_pairs]`, values of `MergeVerdict`.
    limit_us: the longest path that was allowed.
    cap_us: the most work that was allowed in one node.
    merged: the quotient after the batch.
    """

    quotient: Quotient
    height: IntArray
    pairs: Pairs
    verdict: IntArray
    limit_us: float
    cap_us: float
    merged: Quotient

    def __repr__(self) -> str:
        return f"Round({self.quotient.num_nodes} -> {self.merged.num_nodes} nodes)"

    @property
    def batch(self) -> Pairs:
        """The pairs that were merged."""
        return self.pairs[self.verdict == MergeVerdict.MERGED]


OnRound = Callable[[Round], None]


def ignore_round(_: Round) -> None:
    """No-op callback."""
