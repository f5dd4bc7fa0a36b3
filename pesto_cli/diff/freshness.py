"""Freshness: whether a placement is up to date for a graph and a profile."""

from dataclasses import dataclass
from enum import StrEnum

from pesto_cli.diff.graphs import GraphDiff
from pesto_cli.diff.plans import LostSplit
from pesto_cli.diff.prediction import Prediction, slower_by


class Freshness(StrEnum):
    """Whether a placement is up to date."""

    FRESH = "fresh"  # made for this graph and profile
    STALE = "stale"  # made for another graph or profile
    REGRESSED = "regressed"  # slower than its prediction by more than allowed, or out of memory


@dataclass(frozen=True)
class FreshnessCheck:
    """The comparison of a placement with a graph and, if there is one, with a profile of it.

    graph: differences between the placed graph and this graph.
    num_split: the number of ops that the placement splits.
    lost_splits: those of them that start whole in a warm start; empty if nothing has changed.
    has_prices: whether the profile prices parts. Without prices, ops that have none are missing in
        `lost_splits`.
    has_other_profile: whether the placement was made from another profile; None without a profile.
    before: the prediction stored in the placement file.
    now: the prediction by the profile; None without a profile, or if it has no op of the placement.
    max_regression: the allowed slowdown as a share of the step time; None without a limit.
    """

    graph: GraphDiff
    num_split: int
    lost_splits: tuple[LostSplit, ...]
    has_prices: bool
    has_other_profile: bool | None
    before: Prediction
    now: Prediction | None
    max_regression: float | None

    @property
    def slower_by(self) -> float | None:
        """The slowdown since the stored prediction, as a share; see `prediction.slower_by`."""
        return None if self.now is None else slower_by(self.before, self.now)

    @property
    def freshness(self) -> Freshness:
        """The verdict; a placement that is both stale and regressed is regressed."""
        is_slower = (
            self.max_regression is not None
            and self.slower_by is not None
            and self.slower_by > self.max_regression
        )
        if is_slower or (self.now is not None and self.now.shortfall_bytes):
            return Freshness.REGRESSED
        return Freshness.STALE if self.graph or self.has_other_profile else Freshness.FRESH
