"""Refinement: better placement and order at op level, scored by the simulator."""

from pesto_cli.refine.justification import justified
from pesto_cli.refine.stages import (
    STAGES_NEAR_START,
    SUPER_OP_STAGES,
    evaluations_of_super_ops,
    refine,
)

__all__ = [
    "STAGES_NEAR_START",
    "SUPER_OP_STAGES",
    "evaluations_of_super_ops",
    "justified",
    "refine",
]
