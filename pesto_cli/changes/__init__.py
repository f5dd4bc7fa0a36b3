"""What has changed since a placement was made, and what that means for the step."""

from pesto_cli.changes.carried import CarriedOver
from pesto_cli.changes.freshness import Freshness, FreshnessCheck
from pesto_cli.changes.of_graph import GraphChanges, graph_changes
from pesto_cli.changes.of_placement import Move, PlacementChanges, placement_changes
from pesto_cli.changes.prediction import (
    PlacementDifference,
    Prediction,
    predicted,
    promised,
    slower_by,
)

__all__ = [
    "CarriedOver",
    "Freshness",
    "FreshnessCheck",
    "GraphChanges",
    "Move",
    "PlacementChanges",
    "PlacementDifference",
    "Prediction",
    "graph_changes",
    "placement_changes",
    "predicted",
    "promised",
    "slower_by",
]
