"""What one round of merging looked at, and what became of every pair."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from pesto_cli.coarsen.quotient import Pairs, Quotient
from pesto_cli.data.graph import IntArray


class MergeVerdict(IntEnum):
    """What became of a pair that closes no cycle by itself."""

    MERGED = 0
    TAKEN = 1  # one of its nodes is in another pair: condition (i) of Theorem 3.5
    BARRED = 2  # could close a cycle with another pair: condition (iii)
    NO_DEVICE = 3  # with the groups that others join, no device is left for all of it
    CAPPED = 4  # the node or group would have too much work, or too many ops
    TOO_LONG = 5  # lengthens a path beyond the limit
    TOO_LONG_TOGETHER = 6  # does so with others of the batch
    NOT_NEEDED = 7  # few enough nodes are left without it


@dataclass(frozen=True, eq=False, repr=False)
class Round:
    """One batch of merges.

    quotient: before it. height: of its nodes, `[num_nodes]`.
    pairs: those that close no cycle by themselves, in no order.
    verdict: `[num_pairs]`, values of `MergeVerdict`.
    limit_us, cap_us: the longest path, and the most work of a node, that were allowed.
    merged: the quotient after it.
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


def unheard(_: Round) -> None:
    """An `OnRound` for who needs none."""
