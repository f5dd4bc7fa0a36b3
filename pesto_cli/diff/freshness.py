"""Whether a placement is still the one to use."""

from dataclasses import dataclass
from enum import StrEnum

from pesto_cli.diff.graphs import GraphDiff
from pesto_cli.diff.prediction import Prediction, slower_by


class Freshness(StrEnum):
    """Whether a placement is still the one to use."""

    FRESH = "fresh"
    STALE = "stale"  # of another graph or profile
    REGRESSED = "regressed"  # slower than promised by more than is accepted, or out of memory


@dataclass(frozen=True)
class FreshnessCheck:
    """A placement beside the graph, and the profile if there is one, that it is to be used with.

    now: None without a profile, or where nothing of the placement is left in it.
    has_other_profile: None without a profile.
    """

    graph: GraphDiff
    has_other_profile: bool | None
    before: Prediction
    now: Prediction | None
    max_regression: float | None

    @property
    def slower_by(self) -> float | None:
        """See `slower_by`."""
        return None if self.now is None else slower_by(self.before, self.now)

    @property
    def freshness(self) -> Freshness:
        """Regressed comes before stale."""
        is_slower = (
            self.max_regression is not None
            and self.slower_by is not None
            and self.slower_by > self.max_regression
        )
        if is_slower or (self.now is not None and self.now.shortfall_bytes):
            return Freshness.REGRESSED
        return Freshness.STALE if self.graph or self.has_other_profile else Freshness.FRESH
