"""Reproduce published experiments: run them, and report the results next to the papers' numbers.

To add an experiment, write a file for it and add a line to `paper.EXPERIMENTS`.
"""

from pesto_cli.bench.models import BenchModel, Models
from pesto_cli.bench.paper import EXPERIMENTS, paper

__all__ = ["EXPERIMENTS", "BenchModel", "Models", "paper"]
