"""The published experiments, made again: what to run, what of it to show, and the paper's figures.

One file an experiment, one line in `paper.EXPERIMENTS`.
"""

from pesto_cli.bench.models import BenchModel, Models
from pesto_cli.bench.paper import EXPERIMENTS, paper

__all__ = ["EXPERIMENTS", "BenchModel", "Models", "paper"]
