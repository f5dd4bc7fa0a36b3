"""What has changed since a placement was made, and what that means for the step."""

from pesto_cli.diff.freshness import Freshness, FreshnessCheck
from pesto_cli.diff.graphs import GraphDiff, graph_diff
from pesto_cli.diff.mapped_placement import MappedPlacement
from pesto_cli.diff.placements import Move, PlacementDiff, placement_diff
from pesto_cli.diff.prediction import (
    PlacementComparison,
    Prediction,
    predicted,
    promised,
    slower_by,
)

__all__ = [
    "Freshness",
    "FreshnessCheck",
    "GraphDiff",
    "MappedPlacement",
    "Move",
    "PlacementComparison",
    "PlacementDiff",
    "Prediction",
    "graph_diff",
    "placement_diff",
    "predicted",
    "promised",
    "slower_by",
]
