"""Check an installation: what pesto needs, what was found, and the remedy if a check fails."""

from pesto_cli.doctor.check import Finding as Finding
from pesto_cli.doctor.check import Outcome as Outcome
from pesto_cli.doctor.checks import checks as checks
