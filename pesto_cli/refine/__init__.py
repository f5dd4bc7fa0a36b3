"""Refinement: better placement and order at op level, scored by the simulator."""

from pesto_cli.refine.stages import refine as refine
