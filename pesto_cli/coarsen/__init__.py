"""Coarsening: height-based batch merging of ops (Pesto, Section 3.3)."""

from pesto_cli.coarsen.coarsening import Coarsening as Coarsening
from pesto_cli.coarsen.coarsening import coarsen as coarsen
from pesto_cli.coarsen.merge_log import LoggedMerge as LoggedMerge
from pesto_cli.coarsen.merge_log import merge_log as merge_log
from pesto_cli.coarsen.rounds import Round as Round
