"""Refinement: better placement and order at op level, scored by the simulator."""

from pesto_cli.refine.justification import justified
from pesto_cli.refine.stages import STAGES_NEAR_START, refine

__all__ = ["STAGES_NEAR_START", "justified", "refine"]
