"""Coarsening: height-based batch merging of ops (Pesto, Section 3.3)."""

from pesto_cli.coarsen.coarsening import Coarsening as Coarsening
from pesto_cli.coarsen.coarsening import coarsen as coarsen
from pesto_cli.coarsen.considered import Considered as Considered
from pesto_cli.coarsen.considered import considered as considered
from pesto_cli.coarsen.rounds import Round as Round
