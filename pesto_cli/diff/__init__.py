"""Differences between graphs and between placements, and their effect on the step time."""

from pesto_cli.diff.freshness import Freshness, FreshnessCheck
from pesto_cli.diff.graphs import GraphDiff, graph_diff
from pesto_cli.diff.mapped_placement import MappedPlacement, MappedSplit
from pesto_cli.diff.placements import Move, PlacementDiff, placement_diff
from pesto_cli.diff.plans import LostSplit, OtherSplit, WhyWhole, unchanged_choices
from pesto_cli.diff.prediction import (
    PlacementComparison,
    Prediction,
    predicted,
    slower_by,
    stored_prediction,
)

__all__ = [
    "Freshness",
    "FreshnessCheck",
    "GraphDiff",
    "LostSplit",
    "MappedPlacement",
    "MappedSplit",
    "Move",
    "OtherSplit",
    "PlacementComparison",
    "PlacementDiff",
    "Prediction",
    "WhyWhole",
    "graph_diff",
    "placement_diff",
    "predicted",
    "slower_by",
    "stored_prediction",
    "unchanged_choices",
]
